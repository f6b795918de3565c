//! A mail spool.

use super::{Context, Workload};
use crate::caches;
use crate::measurement::Measurement;
use crate::worker::{Crew, Job, mail};
use anyhow::Result;
use std::fs;
use std::path::Path;

/// Delivery into a maildir, reading, deleting.
pub struct Mail;

impl Workload for Mail {
    fn name(&self) -> String {
        "mail".into()
    }

    fn about(&self) -> String {
        "a maildir: 300 messages of 6 KB delivered durably, read, deleted".into()
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn operations(&self, context: &Context) -> (u64, &'static str) {
        (context.scale(300, 20), "message")
    }

    fn prepare(&self, _: &Context, directory: &Path) -> Result<()> {
        Ok(["tmp", "new", "cur"].iter().try_for_each(|name| fs::create_dir(directory.join(name)))?)
    }

    fn run(&self, context: &Context, directory: &Path, _: u64) -> Result<Vec<Measurement>> {
        let messages = self.operations(context).0;
        let job = Job::Mail(mail::Mail { maildir: directory.to_owned(), messages, bytes: 6 << 10 });
        let crew = Crew::start(&context.helper, &[job])?;
        caches::settle();
        let measured = mail::PHASES.iter().zip(crew.run(|| ())?.phases);
        Ok(measured.map(|(name, seconds)| Measurement::per_operation(name, seconds, messages)).collect())
    }
}
