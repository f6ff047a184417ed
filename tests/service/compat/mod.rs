//! The systems whose locks lockkeeper reproduces, a file each: what they do right, and what they do wrong and lockkeeper
//! does not. A wrong way is shown twice: in a model of the original, where it happens, and against lockkeeper, where it
//! cannot.
//!
//! Each file ends with its list of `behaviours!`: functions over a service, run against a leader, a follower and gRPC.

mod all;
mod curator;
mod etcd;
mod probe;
mod zookeeper;
