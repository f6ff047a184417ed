//! Checks of the machine: its clock and its limits.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::finding::Finding;
use crate::limits::{DOCTOR_DESCRIPTORS_MIN, DOCTOR_DESCRIPTORS_WARN};

/// Where Linux names the hardware behind its clocks.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Checks the machine.
pub(super) fn checks() -> Vec<Finding> {
    let source = fs::read_to_string(CLOCK_SOURCE).ok().map(|text| text.trim().to_owned());
    let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    vec![clock(source.as_deref(), cfg!(target_os = "linux")), files(descriptors)]
}

/// Judges the clock from the name of its hardware.
fn clock(source: Option<&str>, counts_suspend: bool) -> Finding {
    if !counts_suspend {
        let detail = "no clock of this system counts the time of a suspend";
        return Finding::fail("clock", detail, "run nodes and clients that must not overlap on Linux");
    }
    match source {
        Some(slow @ ("hpet" | "acpi_pm")) => {
            let detail = format!("the clock source is {slow}: each read costs about a microsecond");
            Finding::warn("clock", detail, "use tsc or kvm-clock: see the kernel's parameter clocksource=")
        }
        Some(source) => Finding::ok("clock", format!("{source}, counts suspend")),
        None => Finding::ok("clock", "counts suspend"),
    }
}

/// Judges the number of descriptors that a process may have. A node raises its own limit up to this.
fn files(descriptors: u64) -> Finding {
    let detail = match descriptors {
        u64::MAX => "no limit of file descriptors".to_owned(),
        number => format!("at most {number} file descriptors"),
    };
    let advice = "raise the hard limit: ulimit -Hn, or LimitNOFILE= in a systemd unit";
    if descriptors < DOCTOR_DESCRIPTORS_MIN {
        return Finding::fail("limits", format!("{detail}: too few for the usual number of clients"), advice);
    }
    if descriptors < DOCTOR_DESCRIPTORS_WARN {
        return Finding::warn("limits", detail, advice);
    }
    Finding::ok("limits", detail)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    /// Slow clock sources are a warning, and a system without a clock that counts suspend is a failure.
    #[test]
    fn clocks_are_judged() {
        let level = |source, counts| clock(source, counts).level;
        assert_eq!([level(Some("tsc"), true), level(None, true)], [Level::Ok; 2]);
        assert_eq!([level(Some("hpet"), true), level(Some("acpi_pm"), true)], [Level::Warn; 2]);
        assert_eq!(level(Some("tsc"), false), Level::Fail);
    }

    /// Few descriptors are a warning, and very few a failure.
    #[test]
    fn descriptors_are_judged() {
        let level = |number| files(number).level;
        assert_eq!([4_095, 4_096, 65_535].map(level), [Level::Fail, Level::Warn, Level::Warn]);
        assert_eq!([65_536, u64::MAX].map(level), [Level::Ok; 2]);
    }
}
