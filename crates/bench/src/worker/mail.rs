//! A mail spool as a delivery agent and a reader use a maildir.

use super::Gate;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

/// The phases, in order.
pub const PHASES: [&str; 3] = ["deliver", "read", "delete"];

/// One maildir.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mail {
    /// The maildir, with `tmp`, `new` and `cur` in it.
    pub maildir: PathBuf,
    /// How many messages.
    pub messages: u64,
    /// Bytes in each.
    pub bytes: usize,
}

impl Mail {
    /// All phases.
    pub fn run(&self, gate: &mut Gate) -> Result<()> {
        let text = vec![b'm'; self.bytes];
        let (tmp, new, cur) = (self.maildir.join("tmp"), self.maildir.join("new"), self.maildir.join("cur"));
        gate.phase(|| {
            let new_directory = File::open(&new).context("open new")?;
            for number in 0..self.messages {
                let name = format!("1700000000.{number}.host");
                let draft = tmp.join(&name);
                let mut file = File::create_new(&draft)?;
                file.write_all(&text)?;
                file.sync_all()?;
                drop(file);
                // Link and unlink rather than rename, so that no message is ever replaced.
                fs::hard_link(&draft, new.join(&name)).context("link into new")?;
                new_directory.sync_all()?;
                fs::remove_file(&draft)?;
            }
            Ok(())
        })?;
        gate.phase(|| {
            for entry in fs::read_dir(&new)? {
                let entry = entry?;
                let seen = cur.join(format!("{}:2,S", entry.file_name().to_string_lossy()));
                fs::rename(entry.path(), &seen)?;
                fs::read(&seen)?;
            }
            Ok(())
        })?;
        gate.phase(|| {
            for entry in fs::read_dir(&cur)? {
                fs::remove_file(entry?.path())?;
            }
            Ok(())
        })
    }
}
