//! The clock that leases run by.

use rustix::time::{ClockId, clock_gettime};
use ullage_voucher::Micros;

/// Since the machine was started, what it slept included: a store that wakes must not believe in a lease that the bank has seen end.
pub(crate) fn now() -> Micros {
    let now = clock_gettime(ClockId::Boottime);
    Micros(now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const ASLEEP: &str = "ULLAGE_TEST_ASLEEP";
    const SLEPT_SECS: u64 = 1_000_000_000;

    /// A store on a machine that had slept took vouchers by a lease that had ended, after its epochs were counted without it.
    #[test]
    fn the_clock_of_leases_goes_on_while_the_machine_sleeps() {
        if std::env::var_os(ASLEEP).is_some() {
            assert!(super::now().0 > SLEPT_SECS * 1_000_000);
            return;
        }
        // To a process below it the machine has slept for so long.
        let mut unshare = Command::new("unshare");
        unshare.args(["--time", "--fork", "--boottime", &SLEPT_SECS.to_string()]);
        if !unshare.arg("true").output().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no time namespace can be made");
            return;
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--time", "--fork", "--boottime", &SLEPT_SECS.to_string()]).env(ASLEEP, "1");
        unshare.arg(std::env::current_exe().unwrap()).arg("the_clock_of_leases_goes_on_while_the_machine_sleeps");
        let output = unshare.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
