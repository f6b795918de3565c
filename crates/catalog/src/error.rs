//! What an operation on the catalog can be refused for.

use ullage_kv::Error as KvError;

/// The catalog's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the catalog refused; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such name, file or attribute holder.
    #[error("there is no such file")]
    NotFound,
    /// The name is taken.
    #[error("the name exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// Something other than a directory was needed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory still has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name is longer than 255 bytes.
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    /// The file has as many names as it can have.
    #[error("the file has too many links")]
    TooManyLinks,
    /// A directory would become its own descendant, or the name is one no file can have.
    #[error("the operation makes no sense for these files")]
    Invalid,
    /// There is no such extended attribute.
    #[error("there is no such extended attribute")]
    NoAttribute,
    /// The extended attributes would be larger than a file may have.
    #[error("no room for more extended attributes")]
    AttributesFull,
    /// The disk of the catalog is full.
    #[error("no room on the disk of the catalog")]
    NoRoom,
    /// The links of one file would spread over two domains of the ledger.
    #[error("the file's links would lie in two limited directories")]
    CrossDomain,
    /// The file's owner would use more than its limit.
    #[error("the user's limit is reached")]
    OverUserLimit,
    /// More would lie below a directory than its limit.
    #[error("the limit of a directory is reached")]
    OverDirectoryLimit,
    /// A file would get more than any file system has.
    #[error("no file can be so large")]
    TooLarge,
    /// A record is not what it should be.
    #[error("the catalog is damaged: {0}; run `ullage check`")]
    Damaged(String),
    /// The store below failed.
    #[error(transparent)]
    Kv(#[from] KvError),
}
