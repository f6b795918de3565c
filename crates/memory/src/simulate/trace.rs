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

/// The longest trace, in seconds: a year. Whoever means milliseconds is told so before a simulation of centuries.
const LONGEST_S: f64 = 366.0 * 86_400.0;

/// Reads a trace: a line of `seconds page` per access; `#` starts a comment. Page numbers may be decimal or `0x…`. Times may
/// count from anywhere, as those of logs do from 1970.
pub fn parse(text: &str) -> Result<Vec<Access>> {
    let mut trace: Vec<Access> = Vec::new();
    let mut start = None;
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
        let mut parsed =
            match (words.next().and_then(|word| word.parse::<f64>().ok()), words.next().and_then(page), words.next()) {
                (Some(at_s), Some(page), None) if at_s.is_finite() && at_s >= 0.0 => Access { at_s, page },
                _ => return Err(Error::Invalid(format!("line {}: '{line}' is not 'seconds page'", index + 1))),
            };
        parsed.at_s -= *start.get_or_insert(parsed.at_s);
        if parsed.at_s > LONGEST_S {
            return Err(Error::Invalid(format!("line {}: more than a year after the first", index + 1)));
        }
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
        for (bad, line) in [
            ("0 1\nx 2\n", "line 2"),
            ("1 1\n0 1\n", "line 2"),
            ("0\n", "line 1"),
            ("0 1 2\n", "line 1"),
            ("0 1\n1e300 2\n", "line 2"),
        ] {
            assert!(parse(bad).unwrap_err().to_string().contains(line), "{bad}");
        }
        let error = parse("0 1\n2e9 2\n").unwrap_err().to_string();
        assert!(error.contains("more than a year"), "{error}");
        assert!(parse("# nothing\n").unwrap_err().to_string().contains("no accesses"));
    }

    /// Regression: the decades before the first access were simulated too, for hours.
    #[test]
    fn times_count_from_the_first_access() {
        let trace = parse("1700000000.5 1\n1700000002.5 2\n").unwrap();
        assert_eq!(trace, [Access { at_s: 0.0, page: 1 }, Access { at_s: 2.0, page: 2 }]);
    }
}
