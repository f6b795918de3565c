//! SQLite transactions, each one durable.

use super::{Context, Workload};
use crate::measurement::Measurement;
use crate::shell::{installed, run, run_quietly};
use anyhow::Result;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The `sqlite3` shell with its defaults: a rollback journal, fully synchronous.
pub struct Sqlite;

impl Workload for Sqlite {
    fn name(&self) -> String {
        "sqlite".into()
    }

    fn about(&self) -> String {
        "300 SQLite transactions of one insert each, rollback journal, fully synchronous".into()
    }

    fn unavailable(&self, _: &Context) -> Option<String> {
        (!installed("sqlite3")).then(|| "sqlite3 is not installed".into())
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        (context.scale(300, 20), "transaction")
    }

    fn prepare(&self, context: &Context, directory: &Path) -> Result<()> {
        let mut script = String::new();
        for number in 0..self.operations(context).0 {
            writeln!(script, "insert into mail values ({number}, hex(zeroblob(500)));")?;
        }
        fs::write(context.scratch.join("sqlite.sql"), script)?;
        run(Command::new("sqlite3")
            .arg(directory.join("db"))
            .arg("create table mail (id integer primary key, text);"))?;
        Ok(())
    }

    fn run(&self, context: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let read = format!(".read '{}'", context.scratch.join("sqlite.sql").display());
        let start = Instant::now();
        run_quietly(Command::new("sqlite3").arg("-bail").arg(directory.join("db")).arg(read))?;
        Ok(vec![Measurement::per_operation("transaction", start.elapsed().as_secs_f64(), self.operations(context).0)])
    }

    fn reset(&self, _: &Context, directory: &Path) -> Result<()> {
        run(Command::new("sqlite3").arg(directory.join("db")).arg("delete from mail;"))?;
        Ok(())
    }
}
