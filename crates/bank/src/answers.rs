//! What is done about a finding: programs of the site's choice, which read it as JSON.

use serde::Serialize;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A program of the site that hangs is ended after this.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Starts a program in the background, with `input` as JSON on its standard input. Nothing secret is in it.
pub(crate) fn run<T: Serialize>(command: &[String], input: &T) {
    let Some((program, arguments)) = command.split_first() else { return };
    let Ok(input) = serde_json::to_vec(input) else { return };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
    let program = program.clone();
    tokio::spawn(async move {
        let run = async {
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(&input).await?;
            }
            child.wait().await
        };
        match tokio::time::timeout(TIME_MAX, run).await {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => tracing::warn!(%program, %status, "the answer to a finding fails"),
            Ok(Err(error)) => tracing::warn!(%program, %error, "the answer to a finding cannot be run"),
            Err(_) => tracing::warn!(%program, "the answer to a finding takes too long"),
        }
    });
}
