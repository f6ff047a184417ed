//! Tests of the lock machine.
