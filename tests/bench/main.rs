//! The cost of the parts that every request uses: the machine, its deadlock detection, the codec, the log on disk, the
//! connection to the cluster. Run by `cargo bench --bench parts`; a further argument selects the parts whose names
//! contain it. The figures are meaningful only on an idle machine.

#![allow(clippy::print_stdout, reason = "the figures are the output")]

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
