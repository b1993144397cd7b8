use proptest::prelude::*;

use super::*;
use crate::name::{CameraName, CameraPattern};

fn camera(text: &str) -> CameraName {
    text.parse().unwrap()
}

fn pattern(text: &str) -> CameraPattern {
    text.parse().unwrap()
}

fn app(name: &str) -> Bearer {
    Bearer::App(camera(name))
}

/// The grant that `app/counter watch dock/*` writes.
fn grant(text: &str) -> Grant {
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches('\'')).collect();
    let [grantee, verb, cameras] = words[..] else { panic!("{text:?} has not three words") };
    Grant {
        grantee: grantee.parse().unwrap(),
        verb: verb.parse().unwrap(),
        cameras: cameras.parse().unwrap(),
    }
}

fn strict(grants: &[&str]) -> Rights {
    Rights::new(Stance::Deny, grants.iter().map(|text| grant(text)))
}

/// The grant that a refusal recommends.
fn remedy(refusal: &Refusal) -> Grant {
    let text = refusal.to_string();
    let command = text.split("`mez keys grant ").nth(1).and_then(|rest| rest.split('`').next());
    grant(command.unwrap_or_else(|| panic!("no command in: {text}")))
}

#[test]
fn what_nobody_granted_is_refused_and_the_named_command_is_the_remedy() {
    let (counter, cam1) = (app("counter"), camera("dock/cam1"));
    let refusal = strict(&[]).check(&counter, Verb::Watch, &cam1).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "app/counter may not watch dock/cam1: it has no grant of watch; to grant this, run `mez keys grant app/counter watch dock/cam1` \
         on the edge's host"
    );
    let given = Rights::new(Stance::Deny, [remedy(&refusal)]);
    assert_eq!(given.check(&counter, Verb::Watch, &cam1), Ok(()));
    given.check(&counter, Verb::Read, &cam1).expect_err("one verb is not another");
    given.check(&counter, Verb::Watch, &camera("dock/cam2")).expect_err("nor one camera another");
    given.check(&app("other"), Verb::Watch, &cam1).expect_err("nor one application another");
    given
        .check(&Bearer::Edge(camera("counter")), Verb::Watch, &cam1)
        .expect_err("nor an edge an application");
}

#[test]
fn a_refusal_lists_what_the_application_has_instead() {
    let many: Vec<String> = (1..=7).map(|n| format!("app/counter watch yard/cam{n}")).collect();
    let rights = strict(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let refusal = rights.select(&app("counter"), &[Verb::Watch], &pattern("dock/*")).unwrap_err();
    let text = refusal.to_string();
    assert!(
        text.contains("its grants of watch are for yard/cam1, yard/cam2, yard/cam3, yard/cam4 and more;"),
        "{text}"
    );
    assert!(text.contains("`mez keys grant app/counter watch 'dock/*'`"), "{text}");
}

#[test]
fn grants_are_for_one_for_some_and_for_all() {
    let rights = strict(&[
        "app/line1/* watch dock/**",
        "app/** observe **",
        "edge/main watch yard/*",
        "user/1000 watch dock/cam1",
        "user/* observe dock/*",
    ]);
    let table = [
        (app("line1/counter"), Verb::Watch, "dock/a/b", true),
        (app("line1"), Verb::Watch, "dock/a", false),
        (app("line1/a/b"), Verb::Watch, "dock/a", false),
        (app("anything/at/all"), Verb::Observe, "yard/cam9", true),
        (Bearer::Edge(camera("main")), Verb::Watch, "yard/cam1", true),
        (Bearer::Edge(camera("main")), Verb::Observe, "yard/cam1", false),
        (Bearer::User(1000), Verb::Watch, "dock/cam1", true),
        (Bearer::User(1001), Verb::Watch, "dock/cam1", false),
        (Bearer::User(1001), Verb::Observe, "dock/cam1", true),
        (Bearer::User(1001), Verb::Observe, "yard/cam1", false),
    ];
    for (who, verb, name, expected) in table {
        assert_eq!(rights.check(&who, verb, &camera(name)).is_ok(), expected, "{who} {verb} {name}");
    }
}

#[test]
fn a_camera_publishes_under_its_own_name_and_nothing_else() {
    let dock = Bearer::Camera(camera("dock"));
    for rights in [strict(&[]), Rights::open()] {
        for (name, expected) in
            [("dock", true), ("dock/cam1", true), ("dock/a/b", true), ("docks", false), ("yard", false)]
        {
            let allowed = rights.check(&dock, Verb::Publish, &camera(name)).is_ok();
            assert_eq!(allowed, expected, "{name}");
            assert_eq!(own_cameras(&camera("dock")).iter().any(|own| own.matches(&camera(name))), expected);
        }
        for verb in Verb::ALL.into_iter().filter(|verb| *verb != Verb::Publish) {
            rights.check(&dock, verb, &camera("dock")).expect_err("a camera's keys are no application's");
        }
        let refusal = rights.check(&dock, Verb::Publish, &camera("yard/cam1")).unwrap_err().to_string();
        assert!(refusal.contains("`mez keys token camera/yard/cam1`"), "{refusal}");
    }
}

/// What an application publishes is a stream of its own at the edge.
#[test]
fn an_application_publishes_what_it_was_granted() {
    let rights = strict(&["app/counter publish dock/*/faces"]);
    assert_eq!(rights.check(&app("counter"), Verb::Publish, &camera("dock/cam1/faces")), Ok(()));
    let refusal = rights.check(&app("counter"), Verb::Publish, &camera("dock/cam1")).unwrap_err().to_string();
    assert!(refusal.contains("`mez keys grant app/counter publish dock/cam1`"), "{refusal}");
    rights.check(&app("other"), Verb::Publish, &camera("dock/cam1/faces")).expect_err("it has no grant");
}

#[test]
fn whoever_can_change_the_rights_is_not_asked() {
    for verb in Verb::ALL {
        assert_eq!(strict(&[]).check(&Bearer::Owner, verb, &camera("dock/cam1")), Ok(()));
    }
}

#[test]
fn an_open_site_allows_what_was_allowed_before_there_were_grants() {
    let (rights, cam1) = (Rights::open(), camera("dock/cam1"));
    let members = [app("counter"), Bearer::Edge(camera("main")), Bearer::User(1000)];
    for (verb, allowed) in [
        (Verb::Publish, [true, true, true]),
        (Verb::Watch, [true, true, true]),
        (Verb::Read, [true, true, true]),
        (Verb::Originals, [true, true, true]),
        (Verb::Reply, [true, true, true]),
        (Verb::Observe, [true, true, true]),
        (Verb::Profile, [true, true, true]),
        (Verb::Operate, [false, false, true]),
        (Verb::Export, [true, true, true]),
        (Verb::Join, [false, false, false]),
        (Verb::Administer, [false, false, false]),
    ] {
        let found = members.each_ref().map(|who| rights.check(who, verb, &cam1).is_ok());
        assert_eq!(found, allowed, "{verb}");
    }
}

#[test]
fn of_a_pattern_one_gets_the_cameras_that_are_granted() {
    let rights = strict(&[
        "app/counter watch dock/cam1",
        "app/counter watch dock/north/*",
        "app/counter read dock/**",
    ]);
    let granted = rights.select(&app("counter"), &[Verb::Watch], &pattern("dock/**")).unwrap();
    for (name, expected) in [("dock/cam1", true), ("dock/cam2", false), ("dock/north/cam7", true)] {
        assert_eq!(granted.allows(&camera(name)), expected, "{name}");
    }
    let both = rights.select(&app("counter"), &[Verb::Watch, Verb::Read], &pattern("dock/*")).unwrap();
    assert!(both.allows(&camera("dock/cam1")) && !both.allows(&camera("dock/cam2")));
    let refusal = rights.select(&app("counter"), &[Verb::Read, Verb::Reply], &pattern("dock/*")).unwrap_err();
    assert_eq!((refusal.verb, &refusal.cameras), (Verb::Reply, &pattern("dock/*")));
    rights
        .select(&app("counter"), &[Verb::Watch], &pattern("yard/*"))
        .expect_err("no grant can select these");
    let named = rights.select(&app("counter"), &[Verb::Watch], &pattern("dock/cam1"));
    assert_eq!(named, Ok(Granted::EVERYTHING));
}

/// A subscription ends when its cameras change, so a grant for others must not change them.
#[test]
fn a_grant_for_other_cameras_changes_nothing_for_a_subscription() {
    let select =
        |rights: &Rights| rights.select(&app("counter"), &[Verb::Watch], &pattern("dock/*")).unwrap();
    let before = select(&strict(&["app/counter watch dock/cam1"]));
    let elsewhere = select(&strict(&[
        "app/counter watch dock/cam1",
        "app/counter watch yard/*",
        "app/other watch dock/*",
    ]));
    let here = select(&strict(&["app/counter watch dock/cam1", "app/counter watch dock/cam2"]));
    assert_eq!(before, elsewhere);
    assert_ne!(before, here);
}

#[test]
fn who_and_what_are_read_as_they_are_written() {
    for text in ["app/counter", "app/**", "app/line1/*", "edge/main", "user/0", "user/1000", "user/*"] {
        assert_eq!(text.parse::<Grantee>().unwrap().to_string(), text);
    }
    for (text, says) in [
        ("counter", "write app/NAME"),
        ("root/x", "write app/NAME"),
        ("camera/dock", "mez keys token app/NAME"),
        ("user/alice", "id -u"),
        ("user/01", "id -u"),
        ("user/-1", "id -u"),
        ("app/", "empty segment"),
        ("app/a*", "one whole segment"),
    ] {
        let error = text.parse::<Grantee>().expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    for verb in Verb::ALL {
        assert_eq!(verb.as_str().parse(), Ok(verb));
    }
    let error = "wach".parse::<Verb>().unwrap_err().to_string();
    assert!(error.starts_with("\"wach\" is not a verb; the verbs are watch, read"), "{error}");
}

/// Few and short segments, so that names and patterns often meet.
fn segments(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(of), 1..5).prop_map(|segments| segments.join("/"))
}

fn names() -> impl Strategy<Value = CameraName> {
    segments(&["a", "b", "c"]).prop_map(|text| text.parse().unwrap())
}

fn patterns() -> impl Strategy<Value = CameraPattern> {
    segments(&["a", "b", "c", "*", "**"]).prop_map(|text| text.parse().unwrap())
}

fn verbs() -> impl Strategy<Value = Verb> {
    prop::sample::select(&[Verb::Watch, Verb::Read, Verb::Reply][..])
}

fn grants() -> impl Strategy<Value = Vec<Grant>> {
    let grantees = prop_oneof![
        patterns().prop_map(Grantee::App),
        patterns().prop_map(Grantee::Edge),
        (0..3_u32).prop_map(Grantee::User),
        Just(Grantee::EveryUser),
    ];
    let grant = (grantees, verbs(), patterns());
    prop::collection::vec(grant.prop_map(|(grantee, verb, cameras)| Grant { grantee, verb, cameras }), 0..12)
}

fn bearers() -> impl Strategy<Value = Bearer> {
    prop_oneof![
        names().prop_map(Bearer::App),
        names().prop_map(Bearer::Edge),
        (0..4_u32).prop_map(Bearer::User),
    ]
}

proptest! {
    /// The trees give the same answer as a test of every grant.
    #[test]
    fn a_check_is_the_same_as_trying_every_grant(
        grants in grants(),
        who in bearers(),
        verb in verbs(),
        camera in names(),
    ) {
        let expected = grants
            .iter()
            .any(|grant| grant.grantee.includes(&who) && grant.verb == verb && grant.cameras.matches(&camera));
        let rights = Rights::new(Stance::Deny, grants);
        prop_assert_eq!(rights.check(&who, verb, &camera).is_ok(), expected);
    }

    /// A subscription to a pattern gives exactly the cameras that are allowed one by one.
    #[test]
    fn a_pattern_selects_what_checks_allow(
        grants in grants(),
        who in bearers(),
        asked in prop::collection::vec(verbs(), 1..3),
        pattern in patterns(),
        camera in names(),
    ) {
        let rights = Rights::new(Stance::Deny, grants);
        let allowed = asked.iter().all(|verb| rights.check(&who, *verb, &camera).is_ok());
        if pattern.matches(&camera) {
            let selected =
                rights.select(&who, &asked, &pattern).is_ok_and(|granted| granted.allows(&camera));
            prop_assert_eq!(selected, allowed);
        }
    }

    /// A refusal names a grant that is missing, and no other.
    #[test]
    fn the_grant_that_a_refusal_names_is_the_one_that_is_missing(
        grants in grants(),
        who in bearers(),
        verb in verbs(),
        camera in names(),
    ) {
        let rights = Rights::new(Stance::Deny, grants.clone());
        if let Err(refusal) = rights.check(&who, verb, &camera) {
            let added = remedy(&refusal);
            let rights = Rights::new(Stance::Deny, grants.into_iter().chain([added]));
            prop_assert_eq!(rights.check(&who, verb, &camera), Ok(()));
        }
    }

    /// More grants never take anything away, and their order does not matter.
    #[test]
    fn grants_only_add(
        grants in grants(),
        more in grants(),
        who in bearers(),
        verb in verbs(),
        camera in names(),
    ) {
        let few = Rights::new(Stance::Deny, grants.clone());
        let many = Rights::new(Stance::Deny, grants.iter().chain(&more).cloned());
        let reversed = Rights::new(Stance::Deny, more.into_iter().rev().chain(grants.into_iter().rev()));
        prop_assert!(few.check(&who, verb, &camera).is_err() || many.check(&who, verb, &camera).is_ok());
        prop_assert_eq!(&many, &reversed);
    }

    /// Two patterns that select one name overlap.
    #[test]
    fn patterns_that_meet_overlap(one in patterns(), two in patterns(), name in names()) {
        if one.matches(&name) && two.matches(&name) {
            prop_assert!(one.overlaps(&two));
        }
        prop_assert_eq!(one.overlaps(&two), two.overlaps(&one));
    }

    /// A grantee that is written and read is the same.
    #[test]
    fn a_grantee_survives_its_text(grant in grants()) {
        for Grant { grantee, .. } in grant {
            prop_assert_eq!(grantee.to_string().parse(), Ok(grantee));
        }
    }
}

/// Prints how long a check takes, with few grants and with many: `cargo test --release -p mez-core --lib rights:: -- --ignored --nocapture`.
#[test]
#[ignore = "prints figures; run it in a release build"]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::disallowed_types,
    reason = "a measurement needs a clock and a place to print"
)]
fn how_long_a_check_takes() {
    type Write = fn(u32) -> String;
    const CHECKS: u32 = 200_000;
    let shapes: [(&str, Write); 4] = [
        ("one camera for one application each", |n| format!("app/counter{n} watch dock/cam{n}")),
        ("many cameras for one application", |n| format!("app/counter0 watch dock/cam{n}")),
        ("patterns for one application", |n| format!("app/counter0 watch hall{n}/**")),
        ("patterns of applications and cameras", |n| format!("app/*/line{n}/** watch **/cam{n}/*")),
    ];
    let asked = [
        (app("counter0"), camera("dock/cam0")),
        (app("counter0"), camera("hall0/north/east/cam1")),
        (app("a/line7/b/c"), camera("dock/north/cam7/left")),
        (app("nobody"), camera("dock/cam0")),
    ];
    for (shape, write) in shapes {
        for count in [1, 10, 100, 1_000] {
            let rights = Rights::new(Stance::Deny, (0..count).map(|n| grant(&write(n))));
            for (who, camera) in &asked {
                let allowed = rights.check(who, Verb::Watch, camera).is_ok();
                let begun = std::time::Instant::now();
                for _ in 0..CHECKS {
                    let _ =
                        std::hint::black_box(rights.check(std::hint::black_box(who), Verb::Watch, camera));
                }
                let ns = begun.elapsed().as_nanos() / u128::from(CHECKS);
                println!("{shape}, {count} grants: {who} watch {camera} ({allowed}): {ns} ns");
            }
        }
    }
}
