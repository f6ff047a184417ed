//! lockkeeper: a replicated lock service.
