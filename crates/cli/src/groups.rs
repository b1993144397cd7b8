//! `mez groups`: lists the groups of readers of an edge, shows one, and forgets one.

use std::io::{self, Write};

use clap::{Args, Subcommand};
use mez_core::subscription::Deliver;
use mez_node::client::{DeadLetter, GroupAccount, GroupLane, GroupMemberSummary, GroupSummary};
use mez_node::runtime::block_on;
use serde_json::{Value, json};

use crate::columns::NOTHING;
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::text::table;

/// List the groups of readers of an edge: members, waiting records, records that were given again, and dead letters
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mez groups                       groups of this user; for the user that the edge runs as, all groups
  mez groups --json                a line of JSON for each group
  mez groups show detect           members, cameras and dead letters of one group
  mez groups forget detect         forget a group without members, and its place
  mez groups --edge edge.local     at another edge, with the keys of an application

LAG: records that the edge has and that no member has got yet. OPEN: records that a member has got and not settled. AGAIN: how often a record was \
given again. DEAD: dead letters, which were given as often as allowed, and no member could process them. LOST: records that could not be given again. \
All numbers are since the start of the edge. PLACE: `disk` survives a restart of the edge, `memory` does not; `asleep`: no member since the edge \
was started."
)]
pub(crate) struct GroupsArgs {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print one line of JSON for each group
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a group's members, its position in each camera's log, and its dead letters with their errors
    Show {
        /// Name of the group
        name: String,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Forget a group without members, and its place. A new group of that name starts with records published from then on
    Forget {
        /// Name of the group
        name: String,
        /// The group's owner, such as app/counter, if it is not you. Only for the user that the edge runs as, on the edge's host
        #[arg(long, value_name = "WHO")]
        owner: Option<String>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

pub(crate) fn run(args: GroupsArgs) -> Result<(), Failure> {
    match args.command {
        Some(Command::Show { name, connect }) => return show(&name, &connect),
        Some(Command::Forget { name, owner, connect }) => return forget(&name, owner.as_deref(), &connect),
        None => {}
    }
    block_on(async {
        let edge = args.connect.connect("mez groups").await?;
        let groups = edge.groups().await?;
        let mut out = io::stdout().lock();
        if args.json {
            groups.iter().try_for_each(|group| writeln!(out, "{}", to_json(group)))?;
        } else if groups.is_empty() {
            writeln!(out, "you have no groups; create one with: mez.subscribe(CAMERAS, group=NAME)")?;
        } else {
            let rows: Vec<_> = groups.iter().map(cells).collect();
            let head = [
                "GROUP", "OWNER", "CAMERAS", "DELIVER", "MEMBERS", "LAG", "OPEN", "DONE", "AGAIN", "DEAD",
                "LOST", "PLACE",
            ];
            write!(out, "{}", table(head, &rows))?;
        }
        Ok(out.flush()?)
    })?
}

fn cells(group: &GroupSummary) -> [String; 12] {
    let account = &group.account;
    let lag: Option<u64> = group.lanes.iter().map(|lane| lane.lag).sum();
    [
        group.name.clone(),
        group.owner.clone(),
        group.cameras.to_string(),
        deliver(group),
        group.members.len().to_string(),
        lag.filter(|_| !group.asleep).map_or(NOTHING.into(), |lag| lag.to_string()),
        account.open.to_string(),
        account.done.to_string(),
        account.given_again.to_string(),
        account.dead.to_string(),
        account.lost.iter().sum::<u64>().to_string(),
        place(group).into(),
    ]
}

fn deliver(group: &GroupSummary) -> String {
    let deliver = if group.deliver == Deliver::Every { "every" } else { "newest" };
    let options = [("ordered", group.ordered), ("fresh", group.fresh)];
    let given = options.into_iter().filter_map(|(name, given)| given.then_some(name));
    std::iter::once(deliver).chain(given).collect::<Vec<_>>().join(", ")
}

fn place(group: &GroupSummary) -> &'static str {
    match (group.asleep, group.survives) {
        (true, _) => "asleep",
        (false, true) => "disk",
        (false, false) => "memory",
    }
}

fn show(name: &str, connect: &ConnectArgs) -> Result<(), Failure> {
    block_on(async {
        let edge = connect.connect("mez groups").await?;
        let groups = edge.groups().await?;
        let known: Vec<_> = groups.iter().filter(|group| group.name == name).collect();
        if known.is_empty() {
            return Err(Failure::text(format!("you have no group {name}; mez groups lists your groups")));
        }
        let mut out = io::stdout().lock();
        for group in known {
            describe(group, &mut out)?;
        }
        Ok(out.flush()?)
    })?
}

fn describe(group: &GroupSummary, out: &mut impl Write) -> io::Result<()> {
    let GroupSummary { name, owner, cameras, account, .. } = group;
    writeln!(out, "group {name} of {owner}: {cameras}, {}", deliver(group))?;
    if let Some(why) = &group.degraded {
        writeln!(out, "its place cannot be written to disk, and would be lost when the edge stops: {why}")?;
    }
    if group.asleep {
        writeln!(out, "the group has had no member since the edge was started; its place on disk is kept")?;
        return Ok(());
    }
    let GroupAccount { given, done, dead, open, .. } = account;
    let lost = GroupAccount::LOST.iter().zip(account.lost).filter(|(_, count)| *count > 0);
    let lost: String = lost.map(|(reason, count)| format!(" + {count} lost ({reason})")).collect();
    writeln!(out, "{given} given = {done} done + {dead} dead letters{lost} + {open} open")?;
    let GroupAccount { given_again, again, failed, silent, left, .. } = account;
    writeln!(
        out,
        "given again {given_again} times: {failed} tries failed, {silent} timed out, {left} ended because the member left; acknowledged again {again} times"
    )?;
    let members: Vec<_> = group.members.iter().map(member_cells).collect();
    write!(out, "{}", table(["MEMBER", "APPLICATION", "GIVEN", "DONE", "FAILED", "OPEN"], &members))?;
    let lanes: Vec<_> = group.lanes.iter().map(lane_cells).collect();
    write!(out, "{}", table(["CAMERA", "LAST", "LAG", "OPEN"], &lanes))?;
    for DeadLetter { camera, frame, tries, last } in &group.dead_letters {
        writeln!(out, "dead letter: {camera} {frame} after {tries} tries: {last}")?;
    }
    Ok(())
}

fn member_cells(member: &GroupMemberSummary) -> [String; 6] {
    let GroupMemberSummary { member, application, given, done, failed, open } = member;
    // Enough digits to distinguish members.
    let short = format!("{member:032x}")[..8].to_owned();
    [short, application.clone(), given.to_string(), done.to_string(), failed.to_string(), open.to_string()]
}

fn lane_cells(lane: &GroupLane) -> [String; 4] {
    let GroupLane { camera, last, open, lag } = lane;
    let lag = lag.map_or(NOTHING.into(), |lag| lag.to_string());
    [camera.to_string(), last.to_string(), lag, open.to_string()]
}

fn to_json(group: &GroupSummary) -> Value {
    let GroupAccount { given, given_again, done, again, failed, silent, left, dead, lost, open } =
        group.account;
    let lost: serde_json::Map<String, Value> =
        GroupAccount::LOST.iter().zip(lost).map(|(reason, count)| ((*reason).into(), count.into())).collect();
    let members = group.members.iter().map(|of| {
        json!({
            "member": format!("{:032x}", of.member), "application": of.application, "given": of.given,
            "done": of.done, "failed": of.failed, "open": of.open,
        })
    });
    let lanes = group.lanes.iter().map(|lane| {
        json!({
            "camera": lane.camera.as_str(), "epoch": lane.last.epoch.0, "sequence": lane.last.sequence.0,
            "open": lane.open, "lag": lane.lag,
        })
    });
    let letters = group.dead_letters.iter().map(|letter| {
        json!({
            "camera": letter.camera.as_str(), "epoch": letter.frame.epoch.0,
            "sequence": letter.frame.sequence.0, "tries": letter.tries, "last": letter.last,
        })
    });
    json!({
        "name": group.name,
        "owner": group.owner,
        "cameras": group.cameras.as_str(),
        "deliver": if group.deliver == Deliver::Every { "every" } else { "newest" },
        "ordered": group.ordered,
        "fresh": group.fresh,
        "again_after_ms": u64::try_from(group.again_after.as_millis()).unwrap_or(u64::MAX),
        "tries": group.tries,
        "open_max": group.open_max,
        "asleep": group.asleep,
        "survives": group.survives,
        "degraded": group.degraded,
        "members": members.collect::<Vec<_>>(),
        "lanes": lanes.collect::<Vec<_>>(),
        "account": {
            "given": given, "given_again": given_again, "done": done, "again": again, "failed": failed,
            "silent": silent, "left": left, "dead": dead, "lost": lost, "open": open,
        },
        "dead_letters": letters.collect::<Vec<_>>(),
    })
}

fn forget(name: &str, owner: Option<&str>, connect: &ConnectArgs) -> Result<(), Failure> {
    block_on(async {
        let edge = connect.connect("mez groups").await?;
        edge.forget_group(name, owner).await?;
        println!("group {name} is forgotten; the next group with this name starts without a place");
        Ok(())
    })?
}
