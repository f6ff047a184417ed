//! The runtimes of commands, and the end of the process after a panic.
//!
//! On a machine with two processors, each worker of `serve`, `dev` and `bench` is bound to one of them. While few
//! processors are busy, Linux wakes a thread on the processor of the thread that woke it, and seldom uses an idle one.
//! All workers of a node and of its clients then run on one processor. Without the binding, the cluster served a
//! quarter fewer locks; with other programs on both processors, the binding made no difference. Commands that start
//! other programs are not bound, because those programs would inherit the binding.

use tokio::runtime::{Builder, Runtime};

use super::error::Failure;
use crate::limits;
use crate::service::ErrorCode;
use crate::storage::panics_are_caught;

/// Creates a runtime whose workers run on any processor.
pub(super) fn anywhere() -> Result<Runtime, Failure> {
    Ok(workers().build()?)
}

/// Workers that serve all tasks in turn. While a worker has more tasks than its own queue holds, the rest waits in the
/// queue that the workers share, and Tokio would look there seldom: next to 2,048 calls at full speed, the calls of
/// another client waited for seconds.
fn workers() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all().global_queue_interval(limits::SHARED_QUEUE_INTERVAL);
    builder
}

/// Creates the runtime of a command that serves or measures.
#[cfg(target_os = "linux")]
pub(super) fn spread() -> Result<Runtime, Failure> {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let processors = allowed();
    if !spreads(processors.len()) {
        return anywhere();
    }
    let started = AtomicUsize::new(0);
    let mut builder = workers();
    // The first threads are the workers. Threads for blocking calls start later, and run on any processor.
    builder.worker_threads(processors.len()).on_thread_start(move || {
        if let Some(processor) = processors.get(started.fetch_add(1, Ordering::Relaxed)) {
            let mut only = rustix::thread::CpuSet::new();
            only.set(*processor);
            // Without the binding the worker is slower, but still correct.
            let _ = rustix::thread::sched_setaffinity(None, &only);
        }
    });
    Ok(builder.build()?)
}

#[cfg(not(target_os = "linux"))]
pub(super) use anywhere as spread;

/// Whether each processor gets one worker. If a control group limits the processor time, or the number of workers is
/// configured, Tokio decides.
#[cfg(target_os = "linux")]
fn spreads(processors: usize) -> bool {
    let share = std::thread::available_parallelism().map_or(1, usize::from);
    let asked = std::env::var_os("TOKIO_WORKER_THREADS").is_some();
    (2..=limits::SPREAD_PROCESSORS_MAX).contains(&processors) && share == processors && !asked
}

/// Processors that this process may use.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

/// Makes every later panic print its message and end the process with the exit code for internal errors, because a dead
/// task could leave a lock in an inconsistent state. Panics that the storage module catches become errors instead.
pub(super) fn panics_end_the_process() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panics_are_caught() {
            return;
        }
        print(panic);
        std::process::exit(i32::from(ErrorCode::Internal.row().exit));
    }));
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn workers_of_a_small_machine_keep_to_a_processor_each() {
        let processors = allowed();
        let runtime = spread().expect("a runtime");
        let threads = runtime.metrics().num_workers();
        let places = runtime.block_on(async {
            // The barrier keeps all workers busy at once, so that each one reports its own processors.
            let all = std::sync::Arc::new(std::sync::Barrier::new(threads));
            let tasks = (0..threads).map(|_| {
                let all = std::sync::Arc::clone(&all);
                tokio::spawn(async move {
                    all.wait();
                    allowed()
                })
            });
            let mut places = Vec::new();
            for task in tasks.collect::<Vec<_>>() {
                places.push(task.await.expect("a worker"));
            }
            places.sort();
            places
        });
        if spreads(processors.len()) {
            let each: Vec<_> = processors.iter().map(|processor| vec![*processor]).collect();
            assert_eq!(places, each);
        } else {
            assert!(places.iter().all(|place| *place == processors), "{places:?}");
        }
        assert_eq!(allowed(), processors, "the thread that starts the workers is not bound");
    }
}
