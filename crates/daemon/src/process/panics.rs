//! What becomes of a mount that finds itself wrong.

/// From now on a panic of any thread ends the process at once, and with it the mount: a limit that nobody watches over any more, or
/// a file that nobody records, would look as well as before. What was promised is on the disk, and the next start goes on from there.
pub fn end_at_any_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        tracing::error!(thread = std::thread::current().name().unwrap_or("?"), "a panic ends the mount");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    const CHILD: &str = "ULLAGE_TEST_PANICS";

    /// The thread that watches over limits once ended by a panic, and the mount stayed.
    #[test]
    fn a_panic_of_one_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            super::end_at_any_panic();
            let _ = std::thread::spawn(|| panic!("as a bug would")).join();
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "process::panics::tests::a_panic_of_one_thread_ends_the_process"]).env(CHILD, "1");
        let status = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(signal_hook::consts::SIGABRT));
    }
}
