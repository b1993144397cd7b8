//! A group whose edge and members are killed under load: every record that the edge holds is processed, and none by two members without a reason.

mod process_support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::subscription::Deliver;
use mez_core::units::Timestamp;
use mez_node::client::{
    Address, ClientOptions, EdgeClient, Event, GroupLane, Membership, SubscribeOptions, Which,
};
use mez_node::identity::{KeyFolder, Role};
use mez_node::runtime::{block_on, pause, within};

use self::process_support::{Running, done, start, video};

const CAMERA: &str = "dock/cam1";
const MEMBERS: usize = 3;

/// An edge with a store, and a camera that publishes a short video in a loop.
struct Site<'a> {
    folder: &'a Path,
    link: String,
    grpc: String,
    edge: Option<Running>,
    camera: Option<Running>,
}

impl<'a> Site<'a> {
    fn new(folder: &'a Path) -> Self {
        done(&["keys", "init", "--site", "test"], folder);
        done(&["keys", "grant", "app/**", "watch,read", "**"], folder);
        done(&["store", "key"], folder);
        video(folder);
        let any = "127.0.0.1:0";
        let mut site = Self { folder, link: any.into(), grpc: any.into(), edge: None, camera: None };
        site.start_edge();
        let edge = site.edge.as_ref().expect("it runs");
        (site.link, site.grpc) = (edge.field("link="), edge.field("grpc="));
        let camera = ["camera", CAMERA, "--edge", &site.link, "--source", "video.avi", "--loop"];
        site.camera = Some(start(&camera, folder));
        site
    }

    fn start_edge(&mut self) {
        let args =
            ["edge", "--listen", &self.link, "--grpc", &self.grpc, "--enrol", "off", "--socket", "e.sock"];
        self.edge = Some(start(&[&args[..], &["--store", "edge"]].concat(), self.folder));
    }
}

async fn client(folder: &Path, grpc: &str) -> EdgeClient {
    let keys = KeyFolder::find(Some(&folder.join("keys"))).unwrap();
    let credentials = keys.credentials(Role::App, None).unwrap();
    let address = Address::parse(grpc, Which::Edge).unwrap();
    let options = ClientOptions { application: "worker".into(), patience: Duration::from_secs(20) };
    EdgeClient::connect(vec![address], Some(&credentials), options).await.unwrap()
}

/// What the members have done: how often each record was given, and how often it was finished.
#[derive(Default)]
struct Work {
    given: BTreeMap<FrameId, u32>,
    finished: BTreeMap<FrameId, u32>,
}

fn options() -> SubscribeOptions {
    let group = Membership {
        again_after: Some(Duration::from_secs(5)),
        tries: Some(100),
        ..Membership::new("detect".parse().unwrap())
    };
    SubscribeOptions {
        deliver: Some(Deliver::Every),
        group: Some(group),
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    }
}

/// A member of the group, on a thread of its own.
struct Member {
    is_killed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Member {
    fn start(site: &Site<'_>, work: &Arc<Mutex<Work>>) -> Self {
        let is_killed = Arc::<AtomicBool>::default();
        let (killed, work) = (Arc::clone(&is_killed), Arc::clone(work));
        let (folder, grpc) = (site.folder.to_owned(), site.grpc.clone());
        let run = move || async move {
            let client = client(&folder, &grpc).await;
            let mut records = client.subscribe(options()).await.unwrap();
            while !killed.load(Ordering::Relaxed) {
                match within(Duration::from_millis(50), records.next()).await {
                    Some(Some(Event::Frame(record))) => {
                        let id = record.meta.id;
                        *work.lock().unwrap().given.entry(id).or_default() += 1;
                        for _ in 0..=id.sequence.0 % 7 {
                            pause(Duration::from_millis(10)).await;
                            if killed.load(Ordering::Relaxed) {
                                return;
                            }
                        }
                        *work.lock().unwrap().finished.entry(id).or_default() += 1;
                    }
                    Some(Some(Event::Failed { reason })) => panic!("{reason}"),
                    Some(None) => panic!("it ended"),
                    _ => {}
                }
            }
        };
        Self { is_killed, thread: std::thread::spawn(move || block_on(run()).unwrap()) }
    }

    /// Closes its connection abruptly, as if its process was killed.
    fn kill(self) {
        self.is_killed.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// The camera's frames in the edge's log.
async fn held(client: &EdgeClient) -> Vec<FrameId> {
    let options = SubscribeOptions {
        begin: Some(Timestamp::MIN),
        end: Some(mez_node::clock::wall_now()),
        held_only: true,
        deliver: Some(Deliver::Every),
        ..SubscribeOptions::new(CAMERA.parse().unwrap())
    };
    let mut past = client.subscribe(options).await.unwrap();
    let mut ids = Vec::new();
    while let Some(event) = past.next().await {
        match event {
            Event::Frame(frame) => ids.push(frame.meta.id),
            Event::Ended { .. } => break,
            Event::Failed { reason } => panic!("{reason}"),
            _ => {}
        }
    }
    ids
}

/// `MEZ_KILLS=100 cargo test -p mez-cli --test groups -- --nocapture` kills 100 times, and prints the account.
#[test]
fn every_record_is_worked_on_whoever_is_killed() {
    let asked: Option<u64> = std::env::var("MEZ_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills = asked.unwrap_or(6);
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::new(folder.path());
    let work = Arc::<Mutex<Work>>::default();
    let mut members: Vec<Member> = (0..MEMBERS).map(|_| Member::start(&site, &work)).collect();
    let has_begun = || work.lock().unwrap().finished.len() >= 5;
    (0..600).take_while(|_| !has_begun()).for_each(|_| sleep(Duration::from_millis(50)));
    assert!(has_begun(), "nothing was given in half a minute");
    for kill in 0..kills {
        sleep(Duration::from_millis(300 + kill * 617 % 900));
        if kill % 3 == 2 {
            site.edge = None;
            sleep(Duration::from_millis(kill * 331 % 700));
            site.start_edge();
        } else {
            let place = kill as usize % MEMBERS;
            let next = Member::start(&site, &work);
            std::mem::replace(&mut members[place], next).kill();
        }
    }
    sleep(Duration::from_secs(1));
    // From here on there are no new records.
    site.camera = None;
    let (group, held) = block_on(async {
        let client = client(site.folder, &site.grpc).await;
        let drained = async {
            loop {
                let group = client.groups().await.ok().and_then(|groups| groups.into_iter().next());
                let is_idle = |lane: &GroupLane| lane.lag == Some(0) && lane.open == 0;
                if let Some(group) = group.filter(|group| group.lanes.iter().any(is_idle)) {
                    return group;
                }
                pause(Duration::from_millis(50)).await;
            }
        };
        let Some(group) = within(Duration::from_secs(120), drained).await else {
            panic!("{:?}", client.groups().await)
        };
        (group, held(&client).await)
    })
    .unwrap();
    members.into_iter().for_each(Member::kill);
    let work = work.lock().unwrap();
    let first = *work.given.keys().next().expect("something was given");
    let untold: Vec<_> = held.iter().filter(|id| **id >= first && !work.finished.contains_key(id)).collect();
    let twice = work.finished.values().filter(|times| **times > 1).count();
    println!(
        "{kills} kills, {} records held, {} finished, {twice} of them twice, {:?}",
        held.len(),
        work.finished.len(),
        group.account
    );
    assert_eq!(untold, Vec::<&FrameId>::new(), "held by the edge, and worked on by nobody: {group:?}");
    // Records that were only in the memory of a killed edge are lost and reported: at most as many as members had at that time.
    let [evicted, others @ ..] = group.account.lost;
    assert_eq!((group.account.dead, others), (0, [0; 4]));
    let of_edge = (0..kills).filter(|kill| kill % 3 == 2).count();
    assert!(
        evicted <= (of_edge * MEMBERS) as u64,
        "{evicted} records were lost to {of_edge} kills of the edge"
    );
    // Each kill may lose the last message of every member.
    assert!(twice as u64 <= kills * MEMBERS as u64, "{twice} of them were done twice");
    assert!(group.survives, "{group:?}");
}
