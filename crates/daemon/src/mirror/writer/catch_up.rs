//! A pool that has missed a file of the mirror gets it from another one: nothing that follows there is of use without it.

use super::{Fill, SETTINGS, Writer, fill_with, text, write_into};
use crate::mirror::copies::{Copies, Rest};
use crate::mirror::files::Generation;
use crate::{Error, Result, SpaceSettings};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::iter::once;
use std::path::PathBuf;
use std::time::Instant;

/// Read at a time.
const PIECE: usize = 64 << 10;

impl Writer {
    /// Brings pools that have missed something up to this generation and its tails, where they have room again. Whether a pool
    /// can be brought there at all: what no other one gives only a new generation makes up for. Who takes no rests has no other time.
    pub(in crate::mirror) fn catch_up(
        &mut self,
        settings: &SpaceSettings,
        generation: &Generation,
        tails: u64,
        rest: Option<&Rest<'_>>,
    ) -> bool {
        let (mut given, needs) = (true, self.needs);
        for at in 0..self.places.len() {
            let is_due = |until| rest.is_none() || until <= Instant::now();
            if !self.places[at].behind.is_some_and(is_due) {
                continue;
            }
            let begun = Instant::now();
            let brought = self.bring(at, settings, generation, tails, rest);
            let place = &mut self.places[at];
            match brought {
                Ok(true) => {
                    place.behind = None;
                    tracing::info!("{} has the copy of the catalog that others have, again", place.path.display());
                }
                // Without room it would be passed by then, too.
                Ok(false) => given &= place.free() <= needs,
                // That it has missed something was said.
                Err(error) => {
                    tracing::debug!("{} is still without it: {error}", place.path.display());
                    place.fell_behind(begun);
                }
            }
        }
        given
    }

    /// Whether what one pool misses could be read in another one. It fails where it cannot be written.
    fn bring(
        &self,
        at: usize,
        settings: &SpaceSettings,
        generation: &Generation,
        tails: u64,
        rest: Option<&Rest<'_>>,
    ) -> Result<bool> {
        let place = &self.places[at];
        let (dir, snapshot) = (place.dir(), generation.snapshot());
        let no_room = || Error::Refused("it has no room".into());
        if !place.has_inodes() {
            return Err(no_room());
        }
        // First, as where a generation is begun.
        let text = text(settings)?;
        if !fs::read_to_string(dir.join(SETTINGS)).is_ok_and(|there| there == text) {
            write_into(once(dir.clone()), SETTINGS, &mut Copies::new(None), &mut |out| fill_with(&text, out))?;
        }
        let names = once(snapshot.clone()).chain((1..=tails).map(|number| generation.tail(number)));
        for name in names.filter(|name| !dir.join(name).exists()) {
            let others = self.places.iter().enumerate().filter(|(other, _)| *other != at);
            let mut sources = others.filter_map(|(_, other)| File::open(other.dir().join(&name)).ok());
            let Some(mut source) = sources.next() else { return Ok(false) };
            let bytes = source.metadata().map_or(0, |meta| meta.len());
            if !place.has_inodes() || name == snapshot && place.free() <= bytes {
                return Err(no_room());
            }
            let mut unread = false;
            let fill: &mut Fill<'_> = &mut |out| copy(&mut source, out, &mut unread);
            let written = write_into(once(dir.clone()), &name, &mut Copies::new(rest), fill);
            if unread {
                return Ok(false);
            }
            written?;
        }
        Ok(true)
    }
}

fn copy(source: &mut File, out: &mut dyn Write, unread: &mut bool) -> std::result::Result<(), ullage_kv::Error> {
    let failed = |source| ullage_kv::Error::Io { doing: "copy", path: PathBuf::new(), source };
    let mut piece = vec![0; PIECE];
    loop {
        let bytes = source.read(&mut piece).inspect_err(|_| *unread = true).map_err(failed)?;
        if bytes == 0 {
            return Ok(());
        }
        out.write_all(&piece[..bytes]).map_err(failed)?;
    }
}
