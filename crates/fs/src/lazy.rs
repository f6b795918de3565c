//! What takes no room until it is not as it was made: of a million files that the kernel knows, few have anything to say.

use std::ops::{Deref, DerefMut};

/// A value with memory of its own from its first change on.
#[derive(Debug, Default)]
pub(crate) struct Lazy<T>(Option<Box<T>>);

/// A type whose values are all alike when they are made.
pub(crate) trait Blank: Default + 'static {
    /// One as it was made, for all who only look.
    fn blank() -> &'static Self;
}

impl<T> Lazy<T> {
    /// The value where it was changed before: to be made as it was has nothing to do elsewhere.
    pub(crate) fn changed(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: Blank> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::blank())
    }
}

impl<T: Blank> DerefMut for Lazy<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

#[cfg(test)]
impl<T> Lazy<T> {
    /// Whether it was never changed.
    pub(crate) fn is_blank(&self) -> bool {
        self.0.is_none()
    }
}
