//! The structural rules of the workspace, as tables, and the tests that check every manifest and every source file against them. To change the
//! architecture, change a table here and explain it in `docs/decisions/`.
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
