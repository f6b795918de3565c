//! Paths in JSON: as text, or, where they are none, as their bytes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for Form {
    fn from(path: &Path) -> Self {
        path.to_str()
            .map_or_else(|| Self::Bytes(path.as_os_str().as_bytes().to_vec()), |text| Self::Text(text.to_owned()))
    }
}

impl From<Form> for PathBuf {
    fn from(form: Form) -> Self {
        match form {
            Form::Text(text) => text.into(),
            Form::Bytes(bytes) => OsString::from_vec(bytes).into(),
        }
    }
}

/// Of one path.
pub(super) mod one {
    use super::{Deserialize, Deserializer, Form, Path, PathBuf, Serialize, Serializer};

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        Form::from(path).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Form::deserialize(deserializer).map(PathBuf::from)
    }
}

/// Of several.
pub(super) mod many {
    use super::{Deserialize, Deserializer, Form, PathBuf, Serializer};

    pub fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(|path| Form::from(path.as_path())))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<Form>::deserialize(deserializer)?.into_iter().map(PathBuf::from).collect())
    }
}
