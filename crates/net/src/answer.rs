//! Answers, and the one form of every error: `{"error": {"code": ..., "message": ..., ...}}`.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An answer's body: all answers are made whole before they leave.
pub type Body = Full<Bytes>;
/// An answer.
pub type Answer = Response<Body>;

/// An error as it travels.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: Problem,
}

/// What went wrong, for programs (`code`) and people (`message`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Problem {
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// A word that stays the same over versions.
    pub code: String,
    /// For people.
    pub message: String,
    /// More, for programs.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub detail: serde_json::Value,
}

impl Problem {
    /// A problem with a status.
    pub fn new(status: StatusCode, code: &str, message: impl ToString) -> Self {
        Self {
            status: status.as_u16(),
            code: code.to_owned(),
            message: message.to_string(),
            detail: serde_json::Value::Null,
        }
    }

    /// With something for programs.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Serialize) -> Self {
        self.detail = serde_json::to_value(detail).unwrap_or_default();
        self
    }

    /// As an answer.
    pub fn answer(self) -> Answer {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = json(&ErrorBody { error: self });
        *answer.status_mut() = status;
        answer
    }
}

/// An answer in JSON.
pub fn json<T: Serialize>(value: &T) -> Answer {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut answer = Response::new(Full::new(Bytes::from(bytes)));
    let headers = answer.headers_mut();
    headers.insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    answer
}

/// Reads a whole body of at most `max_bytes`.
///
/// # Errors
/// 413 when it is longer, 400 when it breaks off.
pub async fn read_body(body: Incoming, max_bytes: usize) -> Result<Bytes, Problem> {
    match Limited::new(body, max_bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("a body of this request has at most {max_bytes} bytes"),
        )),
        Err(error) => Err(Problem::new(StatusCode::BAD_REQUEST, "broken_off", format!("read the body: {error}"))),
    }
}

/// Reads a body in JSON.
///
/// # Errors
/// As [`read_body`], and 400 when it is something else.
pub async fn read_json<T: DeserializeOwned>(body: Incoming, max_bytes: usize) -> Result<T, Problem> {
    let bytes = read_body(body, max_bytes).await?;
    serde_json::from_slice(&bytes).map_err(|error| Problem::new(StatusCode::BAD_REQUEST, "bad_json", error))
}
