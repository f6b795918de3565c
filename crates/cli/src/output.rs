//! How answers look: JSON for programs, tables for people.

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;

/// Prints a value as JSON, with a version in it so that programs can tell formats apart.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut value = serde_json::to_value(value)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("format".into(), 1.into());
    }
    println!("{}", serde_json::to_string_pretty(&value)?);
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

/// Two columns: what, and its value.
pub fn facts(rows: &[(&str, String)]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        println!("{name:width$}  {value}");
    }
}

/// An error with its causes, each said once: many name their cause themselves.
pub fn error(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Shows on a terminal that long work goes on.
pub fn spinner() -> indicatif::ProgressBar {
    let style = indicatif::ProgressStyle::with_template("{spinner} {msg} {human_pos} [{elapsed}]");
    let spinner = indicatif::ProgressBar::new_spinner();
    style.map(|style| spinner.set_style(style)).ok();
    spinner.enable_steady_tick(std::time::Duration::from_millis(100));
    spinner
}

/// What is being done, and how far it has come.
pub fn spin(spinner: &indicatif::ProgressBar, what: &'static str, count: u64) {
    spinner.set_message(what);
    spinner.set_position(count);
}
