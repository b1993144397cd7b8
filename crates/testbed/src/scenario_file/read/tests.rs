//! Tests that a file that makes no sense is refused, with the name of the field.

use super::*;

const SOUND: &str = "name = \"x\"\nseconds = 5\n[[camera]]\nname = \"dock/cam1\"\n[[subscription]]\nname = \"s\"\ncameras = \"**\"\n";

fn error(more: &str) -> String {
    format!("{SOUND}{more}").parse::<Scenario>().expect_err("it makes no sense").to_string()
}

#[test]
fn what_makes_no_sense_is_named_by_its_field() {
    SOUND.parse::<Scenario>().expect("this does");
    let told = format!("edge_channels = [\"hall:fair=**\"]\n{SOUND}").parse::<Scenario>();
    let told = told.expect_err("there is no such goal").to_string();
    assert!(told.starts_with("edge_channels: the channel hall has the unknown goal \"fair\"; use"), "{told}");
    for (more, part) in [
        ("[[camera]]\nname = \"dock/cam1\"\n", "camera[1].name: \"dock/cam1\" is there twice"),
        ("[[camera]]\nname = \"a b\"\n", "camera[1].name"),
        (
            "[[camera]]\nname = \"c\"\nframe_kilobytes = [9, 3]\n",
            "camera[1].frame_kilobytes: 3 is not between 9",
        ),
        ("[[camera]]\nname = \"c\"\nlink = { channel = \"tin_cans\" }\n", "camera[1].link.channel"),
        (
            "[[camera]]\nname = \"c\"\nlink = { megabits_per_second = 0 }\n",
            "camera[1].link.megabits_per_second",
        ),
        ("[[camera]]\nname = \"c\"\nfps = 3\n", "unknown field `fps`"),
        (
            "[[camera]]\nname = \"c\"\nfootage = \"cats\"\n",
            "camera[1].footage: there is no cats; there are pedestrians",
        ),
        (
            "[[camera]]\nname = \"c\"\nlink = { shared = \"string\" }\n",
            "camera[1].link.shared: there is no string; there are queue",
        ),
        (
            "[[camera]]\nname = \"c\"\nlink = { shared = \"wifi\", channel = \"calm\" }\n",
            "camera[1].link.shared: give either a channel",
        ),
        (
            "[[camera]]\nname = \"c\"\nlink = { shared = \"wifi\" }\n[[camera]]\nname = \"d\"\nlink = { shared = \"queue\" }\n",
            "camera[2].link.shared: a scenario has one shared medium",
        ),
        (
            "[[subscription]]\nname = \"t\"\ncameras = \"**\"\nprofile = \"panning_720p\"\n",
            "subscription[1].profile: the accuracies of panning_720p were not measured",
        ),
        (
            "[[subscription]]\nname = \"t\"\ncameras = \"yard/*\"\n",
            "subscription[1].cameras: \"yard/*\" names no camera of this scenario",
        ),
        (
            "[[subscription]]\nname = \"t\"\ncameras = \"**\"\nlatency_ms = 0\n",
            "subscription[1].latency_ms: the latency bound is 0",
        ),
        (
            "[[expect]]\nsubscription = \"t\"\nframes_min = 1\n",
            "expect[0].subscription: \"t\" is no subscription",
        ),
        ("[[expect]]\nsubscription = \"s\"\n", "expect[0]: nothing is expected"),
        ("[[expect]]\nsubscription = \"s\"\nfrom_s = 3\nuntil_s = 2\nframes_min = 1\n", "expect[0].until_s"),
    ] {
        assert_names(more, part);
    }
    let error = "name = \"x\"\nseconds = 5\n".parse::<Scenario>().expect_err("no camera").to_string();
    assert!(error.contains("at least one [[camera]]"), "{error}");
    let error = "name = \"x\"\nseconds = \"long\"\n".parse::<Scenario>().expect_err("no number").to_string();
    assert!(error.contains("line 2") && error.contains("seconds"), "{error}");
}

#[test]
fn changes_that_make_no_sense_are_named_by_their_field() {
    for (more, part) in [
        (
            "[[change]]\nat_s = 9\nfault = \"cut\"\ncamera = \"**\"\n",
            "change[0].at_s: 9 is not between 0 and 5",
        ),
        ("[[change]]\nat_s = 1\nfault = \"cut\"\n", "change[0]: this change needs a `camera`"),
        (
            "[[change]]\nat_s = 1\nfault = \"cut\"\ncamera = \"yard/*\"\n",
            "change[0].camera: \"yard/*\" names no camera",
        ),
        ("[[change]]\nat_s = 1\ncamera = \"**\"\n", "change[0]: give exactly one of"),
        ("[[change]]\nat_s = 1\nfault = \"explode\"\n", "unknown variant `explode`"),
        (
            "[[change]]\nat_s = 1\nevery_s = 0\ncamera = \"**\"\nfault = \"cut\"\n",
            "change[0].every_s: 0 is not between 0.5",
        ),
        (
            "[[change]]\nat_s = 1\nevery_s = 1\nover_s = 1\ncamera = \"**\"\nmegabits_per_second = 1\n",
            "change[0]: give either every_s or over_s",
        ),
        (
            "[[change]]\nat_s = 1\nover_s = 1\ncamera = \"**\"\nfault = \"cut\"\n",
            "change[0].over_s: only megabits_per_second can change gradually",
        ),
        (
            "[[change]]\nat_s = 1\nover_s = 1\ncamera = \"**\"\nmegabits_per_second = 0\n",
            "change[0].over_s: a link that carries nothing",
        ),
        (
            "[[change]]\nat_s = 3\nover_s = 4\ncamera = \"**\"\nmegabits_per_second = 1\n",
            "change[0].over_s: 4 is not between 0.5 and 2",
        ),
    ] {
        assert_names(more, part);
    }
}

fn assert_names(more: &str, part: &str) {
    let error = error(more);
    assert!(error.contains(part), "{error:?} does not say {part:?}");
}
