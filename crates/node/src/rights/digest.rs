//! A digest of rights, to compare them.

use mez_core::rights::{Rights, Stance};
use ring::digest::{Context, SHA256};

/// SHA-256 of the rights as lines: the stance first, then all grants in order.
pub fn digest(rights: &Rights) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    let stance = if rights.stance() == Stance::Open { "open" } else { "deny" };
    context.update(stance.as_bytes());
    for grant in rights.grants() {
        context.update(format!("\n{grant}").as_bytes());
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use mez_core::rights::{Grant, Verb};

    use super::*;

    #[test]
    fn rights_are_the_same_whatever_their_order_and_differ_in_anything_else() {
        let grant = |who: &str, verb, cameras: &str| Grant {
            grantee: who.parse().unwrap(),
            verb,
            cameras: cameras.parse().unwrap(),
        };
        let (one, other) = (grant("app/a", Verb::Watch, "dock/*"), grant("user/7", Verb::Read, "**"));
        let of = |stance, grants: &[&Grant]| digest(&Rights::new(stance, grants.iter().copied().cloned()));
        let both = of(Stance::Deny, &[&one, &other]);
        assert_eq!(both, of(Stance::Deny, &[&other, &one]));
        for another in [of(Stance::Open, &[&one, &other]), of(Stance::Deny, &[&one]), of(Stance::Deny, &[])] {
            assert_ne!(both, another);
        }
    }
}
