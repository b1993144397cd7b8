//! An edge's rights: the file that people write, and the rights in force.
//!
//! [`mez_core::rights`] decides. This module has the file `rights.toml` in the folder of keys ([`RightsFile`]),
//! its text ([`text`]), changes of the text that keep comments ([`edit`]), and the rights in force
//! ([`LiveRights`]), which follow the file while the edge runs. [`digest()`] tells whether two are the same.

mod digest;
pub mod edit;
mod file;
mod live;
pub mod text;

pub use self::digest::digest;
pub use self::edit::EditError;
pub use self::file::{BEFORE, RIGHTS, RightsError, RightsFile};
pub use self::live::{LiveRights, follow};
pub use self::text::{RightsText, RightsTextError};
