//! The catalog's services in the shape that pools ask for.

use std::sync::Arc;
use ullage_catalog::{CatalogMarks, CatalogNumbers};
use ullage_pool::{Error, Marks, Numbers};
use ullage_types::{FileId, Generation};

pub(crate) struct NumbersOf(pub Arc<CatalogNumbers>);

impl Numbers for NumbersOf {
    fn next(&self) -> (FileId, Generation) {
        self.0.pair()
    }
}

pub(crate) struct MarksOf(pub Arc<CatalogMarks>);

impl Marks for MarksOf {
    fn mark(&self, leaves: &[&[u8]]) -> Result<(), Error> {
        self.0.mark(leaves).map_err(|error| Error::Unusable(error.to_string()))
    }

    fn clear(&self, leaf: &[u8]) {
        if let Err(error) = self.0.clear(leaf) {
            tracing::debug!("a mark stays: {error}");
        }
    }
}
