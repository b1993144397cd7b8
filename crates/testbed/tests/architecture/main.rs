//! The rules of structure of the workspace, as tables, and the tests that hold every manifest and every source file to them. To change the
//! architecture, change a table here and say why in `docs/decisions/`.
//!
//! | rule | where |
//! | --- | --- |
//! | which crate may import which | `manifests.rs` |
//! | which module of core and of the testbed may use which; no two files use each other | `modules.rs`, `testbed.rs` |
//! | how long a file and a function may be | `sizes.rs` |

mod layout;
mod manifests;
mod modules;
mod sizes;
mod source;
mod testbed;

/// Fails with all sentences, if there are any.
fn assert_none(breaches: &[String]) {
    assert!(breaches.is_empty(), "\n\n{}\n", breaches.join("\n"));
}
