//! The place of a pool that a space was started without: its disk is gone, or does not answer.
//!
//! Nothing of it is read or changed. What is removed meanwhile is remembered by the marks of its leaves, so that the next start with the pool
//! takes the backing files back.

use crate::{Abilities, Access, Binding, Description, Error, Fresh, Hint, Locator, Marks, Pool, Suspect, Usage, Wait};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// A pool that is not there.
pub struct AbsentPool {
    marks: Arc<dyn Marks>,
    layout: &'static str,
    path: PathBuf,
}

impl AbsentPool {
    /// In the place of the pool with these marks and this layout, which lies there when it is.
    pub fn new(marks: Arc<dyn Marks>, layout: &'static str, path: PathBuf) -> Self {
        Self { marks, layout, path }
    }

    fn error(&self, doing: &'static str) -> Error {
        Error::io(doing, &self.path)(std::io::Error::from_raw_os_error(libc::EIO))
    }
}

impl Pool for AbsentPool {
    fn is_there(&self) -> bool {
        false
    }

    fn create(&self, _: Hint) -> Result<Fresh, Error> {
        Err(self.error("make a file in"))
    }

    fn abandon(&self, _: Fresh) {}

    fn open_waiting(&self, _: &Binding, _: Access, _: Wait) -> Result<File, Error> {
        Err(self.error("open a file in"))
    }

    fn doom(&self, binding: &Binding) -> Result<(), Error> {
        self.marks.mark(&[binding.locator.leaf()])
    }

    fn is_marked(&self, _: &Locator) -> bool {
        false
    }

    /// Its leaf stays marked.
    fn release(&self, _: Binding) {}

    fn usage(&self) -> Result<Usage, Error> {
        Ok(Usage::default())
    }

    fn suspects(&self, _: &[u8], _: &mut dyn FnMut(Suspect)) -> Result<(), Error> {
        Ok(())
    }

    fn recreate(&self, _: &Binding) -> Result<File, Error> {
        Err(self.error("make a file in"))
    }

    fn describe(&self) -> Description {
        Description {
            kind: "dir",
            layout: Some(self.layout),
            path: Some(self.path.clone()),
            fs_type: None,
            unit: 0,
            extents: false,
            abilities: Abilities::default(),
            notes: vec!["the space was started without it: its files cannot be read or written".to_owned()],
        }
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}
