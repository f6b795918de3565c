//! Traces: lines of `seconds page`.

use crate::error::{Error, Result};

/// One access of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// Seconds since the trace's start; never decreasing.
    pub at_s: f64,
    /// Page number.
    pub page: u64,
}

/// Reads a trace: a line of `seconds page` per access; `#` starts a comment. Page numbers may be
/// decimal or `0x…`.
pub fn parse(text: &str) -> Result<Vec<Access>> {
    let mut trace: Vec<Access> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        let page = |word: &str| match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => word.parse().ok(),
        };
        let parsed =
            match (words.next().and_then(|word| word.parse::<f64>().ok()), words.next().and_then(page), words.next()) {
                (Some(at_s), Some(page), None) if at_s.is_finite() && at_s >= 0.0 => Access { at_s, page },
                _ => return Err(Error::Invalid(format!("line {}: '{line}' is not 'seconds page'", index + 1))),
            };
        if trace.last().is_some_and(|last| last.at_s > parsed.at_s) {
            return Err(Error::Invalid(format!("line {}: time goes backwards", index + 1)));
        }
        trace.push(parsed);
    }
    if trace.is_empty() { Err(Error::Invalid("the trace has no accesses".into())) } else { Ok(trace) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_with_errors_are_refused_by_line() {
        assert!(parse("0 1\n1 0x10 # hex\n").is_ok());
        for (bad, line) in
            [("0 1\nx 2\n", "line 2"), ("1 1\n0 1\n", "line 2"), ("0\n", "line 1"), ("0 1 2\n", "line 1")]
        {
            assert!(parse(bad).unwrap_err().to_string().contains(line), "{bad}");
        }
        assert!(parse("# nothing\n").unwrap_err().to_string().contains("no accesses"));
    }
}
