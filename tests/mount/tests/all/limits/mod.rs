//! Limits: no way in which files grow passes them, and nothing is refused while there is room.

pub mod bed;
mod before;
mod beside;
mod blocks;
mod brake;
mod closed;
mod commands;
mod detached;
mod fence;
mod growth;
mod lasting;
mod late;
mod lend;
mod loads;
mod loops;
mod mark;
mod neighbours;
mod overwrites;
mod removed;
mod side_by_side;
mod stopped;
mod stores;
mod taken;
mod units;
mod untold;
mod within;
mod writers;
