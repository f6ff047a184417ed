//! What the parts cost that every request goes through: the machine, its search for deadlocks, the codec, the log on
//! disk, the way to the cluster. Run by `cargo bench --bench parts`, with a part of a name behind it for some of them.
//! Figures mean something on a quiet machine.

#![allow(clippy::print_stdout, reason = "the figures are there to be read")]

mod codec;
mod deadlock;
mod machine;
mod timer;
mod wal;
mod ways;
mod words;

use self::timer::Timer;

fn main() {
    let timer = Timer::from_arguments();
    println!("{:<64} {:>10} {:>10} {:>10} {:>16}", "PART", "QUARTILE", "MEDIAN", "QUARTILE", "MEDIAN RATE");
    machine::free_locks(&timer);
    machine::hand_over(&timer);
    machine::mass_expiry(&timer);
    deadlock::one_more_wait(&timer);
    codec::entries(&timer);
    wal::append_and_sync(&timer);
    ways::embedded_and_remote(&timer);
}
