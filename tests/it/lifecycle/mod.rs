//! The life of a workspace: the table of its states and calls, what becomes of it in every scenario that is known, and many
//! steps of it at random.

mod guest;
mod model;
mod rig;
mod rows;
mod table;
