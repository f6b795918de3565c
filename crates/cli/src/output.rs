//! How answers look: JSON for programs, tables for people.

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

/// Prints a line, as `println!` does, by way of [`text`].
macro_rules! say {
    () => { $crate::output::text(&"\n") };
    ($($words:tt)*) => { $crate::output::text(&format_args!("{}\n", format_args!($($words)*))) };
}

/// Prints a line on standard error. Nobody may be there to read it, and there is nowhere to say so.
macro_rules! whisper {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// Why standard output takes no more.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints. Once standard output has failed the rest is dropped and the command goes on: a repair is not to end half-way
/// because `head` has seen enough.
pub fn text(text: &dyn std::fmt::Display) {
    let Ok(mut failed) = FAILED.lock() else { return };
    if failed.is_none() {
        *failed = write!(io::stdout(), "{text}").err();
    }
}

/// At the end: whether everything that was printed arrived. A reader that went away wanted no more.
pub fn finish() -> anyhow::Result<()> {
    let failed = FAILED.lock().ok().and_then(|mut failed| failed.take());
    match failed.map_or_else(|| io::stdout().flush(), Err) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write the output"),
        _ => Ok(()),
    }
}

/// Prints a value as JSON, with a version in it so that programs can tell formats apart.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut value = serde_json::to_value(value)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("format".into(), 1.into());
    }
    say!("{}", serde_json::to_string_pretty(&value)?);
    Ok(())
}

/// A plain table with these headings; `numbers` are the columns to align right.
pub fn table(headings: &[&str], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(headings);
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A name, a path, or a text with such in it, as a terminal may have it: users choose names, and those who print them are to be
/// neither led by escape sequences nor shown lines that nobody wrote.
pub fn shown(text: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for chunk in text.as_ref().as_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() { shown.extend(char.escape_default()) } else { shown.push(char) }
        }
        shown.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    shown
}

/// Two columns: what, and its value.
pub fn facts(rows: &[(&str, String)]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        say!("{name:width$}  {}", shown(value));
    }
}

/// An error with its causes, each said once: many name their cause themselves. As a terminal may have it: paths in it are others' names. A
/// line after the first begins with blanks, so that no name can pass for a line of its own.
pub fn error(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text.lines().map(shown).collect::<Vec<_>>().join("\n  ")
}

/// Shows on a terminal that long work goes on.
pub fn spinner() -> indicatif::ProgressBar {
    let style = indicatif::ProgressStyle::with_template("{spinner} {msg} {human_pos} [{elapsed}]");
    let spinner = indicatif::ProgressBar::new_spinner();
    style.map(|style| spinner.set_style(style)).ok();
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}

/// A progress bar of this style on a terminal; nothing elsewhere, or where it is to be quiet.
pub fn bar(quiet: bool, style: &str) -> indicatif::ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(0);
    indicatif::ProgressStyle::with_template(style).map(|style| bar.set_style(style)).ok();
    bar
}

/// What is being done, and how far it has come.
pub fn spin(spinner: &indicatif::ProgressBar, what: &'static str, count: u64) {
    spinner.set_message(what);
    spinner.set_position(count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_without_control_characters_and_invalid_bytes() {
        assert_eq!(shown("Grüße, 'a b'\\"), "Grüße, 'a b'\\");
        assert_eq!(shown("a\nb\t\u{1b}[2J\u{7f}\u{9b}"), "a\\nb\\t\\u{1b}[2J\\u{7f}\\u{9b}");
        assert_eq!(shown(OsStr::from_bytes(b"a\xff\xc3b")), "a\\xff\\xc3b");
    }

    /// They reached the terminal as they were, with whatever a name among them would have it do.
    #[test]
    fn errors_are_shown_without_control_characters_and_each_cause_once() {
        let error =
            anyhow::anyhow!("no such file").context("cannot look at a\u{1b}[2J\nullage: all is well: no such file");
        assert_eq!(super::error(&error), "cannot look at a\\u{1b}[2J\n  ullage: all is well: no such file");
    }
}
