//! lockkeeper: a replicated lock service.

pub mod storage;
