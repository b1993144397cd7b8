//! Programs that resume while brokers are killed under load. Compares received and reported frames with the camera's log.

mod process_support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use mez_core::frame::{FrameId, Sequence};
use mez_core::subscription::{Deliver, NotHeld, NotHeldReason};
use mez_core::units::Timestamp;
use mez_node::client::{Address, ClientOptions, EdgeClient, Event, Resume, SubscribeOptions, Which};
use mez_node::identity::{KeyFolder, Role};
use mez_node::runtime::{block_on, within};

use self::process_support::{Running, done, start, video};

const CAMERA: &str = "dock/cam1";

struct Site<'a> {
    folder: &'a Path,
    /// The edge's addresses, which it keeps over restarts.
    link: String,
    grpc: String,
}

impl Site<'_> {
    fn edge(&self) -> Running {
        let args =
            ["edge", "--listen", &self.link, "--grpc", &self.grpc, "--enrol", "off", "--socket", "e.sock"];
        start(&[&args[..], &["--store", "edge"]].concat(), self.folder)
    }

    fn camera(&self) -> Running {
        let args = ["camera", CAMERA, "--edge", &self.link, "--source", "video.avi", "--loop"];
        start(&[&args[..], &["--store", "camera"]].concat(), self.folder)
    }
}

/// The running brokers.
struct Brokers {
    edge: Option<Running>,
    camera: Option<Running>,
}

impl Brokers {
    /// Kills the edge without warning, like a power cut.
    fn kill_edge(&mut self) {
        drop(self.edge.take());
    }

    fn kill_camera(&mut self) {
        drop(self.camera.take());
    }
}

/// A site with keys, a short video, and an edge with fixed ports.
fn site(folder: &Path) -> (Site<'_>, Running) {
    done(&["keys", "init", "--site", "test"], folder);
    done(&["keys", "grant", "app/**", "watch,read,originals,reply,observe,profile", "**"], folder);
    done(&["store", "key"], folder);
    video(folder);
    let mut site = Site { folder, link: "127.0.0.1:0".into(), grpc: "127.0.0.1:0".into() };
    let edge = site.edge();
    (site.link, site.grpc) = (edge.field("link="), edge.field("grpc="));
    (site, edge)
}

/// What a program received of the camera, and what was reported to it.
#[derive(Clone, Debug, Default)]
struct Account {
    got: Vec<FrameId>,
    /// The frames that were reported as skipped by number.
    counted: BTreeSet<FrameId>,
    told: Vec<NotHeld>,
    lost_edge: u64,
}

impl Account {
    fn take(&mut self, event: Event) {
        match event {
            Event::Frame(frame) => {
                let id = frame.meta.id;
                if let Some(last) = self.got.last().copied() {
                    assert!(last < id, "{id} came after {last}");
                    let from = if last.epoch == id.epoch { last.sequence.0 + 1 } else { 0 };
                    assert_eq!(frame.skipped.total(), id.sequence.0 - from, "between {last} and {id}");
                    let passed =
                        (from..id.sequence.0).map(|sequence| FrameId { sequence: Sequence(sequence), ..id });
                    self.counted.extend(passed);
                }
                self.told.extend(frame.not_held);
                self.got.push(id);
            }
            Event::Disconnected { .. } => self.lost_edge += 1,
            Event::Failed { reason } => panic!("{reason}"),
            _ => {}
        }
    }

    /// Those of `all` that were neither received nor reported.
    fn untold(&self, all: &[(FrameId, Timestamp)]) -> Vec<(FrameId, Timestamp)> {
        let (Some(first), Some(last)) = (self.got.first(), self.got.last()) else { return all.to_vec() };
        let got: BTreeSet<&FrameId> = self.got.iter().collect();
        let untold = all.iter().filter(|(id, captured)| {
            let is_told = self.told.iter().any(|told| (told.begin..told.end).contains(captured));
            id > first && id < last && !got.contains(id) && !self.counted.contains(id) && !is_told
        });
        untold.copied().collect()
    }
}

async fn connect(site: &Site<'_>) -> EdgeClient {
    let credentials =
        KeyFolder::find(Some(&site.folder.join("keys"))).unwrap().credentials(Role::App, None).unwrap();
    // Over TCP, as from other hosts: gRPC with TLS.
    let address = Address::parse(&site.grpc, Which::Edge).unwrap();
    let options = ClientOptions { application: "resuming".into(), patience: Duration::from_secs(20) };
    EdgeClient::connect(vec![address], Some(&credentials), options).await.unwrap()
}

/// A program that subscribes until it is told to stop.
fn program(
    site: &Site<'_>,
    resume: Resume,
    deliver: Option<Deliver>,
) -> (Arc<Mutex<Account>>, std::thread::JoinHandle<()>, Arc<Mutex<bool>>) {
    let (account, stop) = (Arc::<Mutex<Account>>::default(), Arc::<Mutex<bool>>::default());
    let (taken, stopped) = (Arc::clone(&account), Arc::clone(&stop));
    let (folder, link, grpc) = (site.folder.to_owned(), site.link.clone(), site.grpc.clone());
    let thread = std::thread::spawn(move || {
        block_on(async {
            let site = Site { folder: &folder, link, grpc };
            let edge = connect(&site).await;
            let options =
                SubscribeOptions { resume, deliver, ..SubscribeOptions::new(CAMERA.parse().unwrap()) };
            let mut subscription = edge.subscribe(options).await.unwrap();
            loop {
                if *stopped.lock().unwrap() {
                    return;
                }
                match within(Duration::from_millis(200), subscription.next()).await {
                    Some(Some(event)) => taken.lock().unwrap().take(event),
                    Some(None) => return,
                    None => {}
                }
            }
        })
        .unwrap();
    });
    (account, thread, stop)
}

/// All frames that edge and camera hold, in a quiet phase.
fn held(site: &Site<'_>) -> Vec<(FrameId, Timestamp)> {
    block_on(async {
        let edge = connect(site).await;
        let options = SubscribeOptions {
            begin: Some(Timestamp::MIN),
            end: Some(mez_node::clock::wall_now()),
            deliver: Some(Deliver::Every),
            ..SubscribeOptions::new(CAMERA.parse().unwrap())
        };
        let mut reading = edge.subscribe(options).await.unwrap();
        let mut held = Vec::new();
        while let Some(event) = reading.next().await {
            match event {
                Event::Frame(frame) => held.push((frame.meta.id, frame.meta.captured)),
                Event::Ended { .. } => break,
                Event::Failed { reason } => panic!("{reason}"),
                _ => {}
            }
        }
        held
    })
    .unwrap()
}

/// The number of frames in the camera's log, from `mez store verify`.
fn frames(folder: &Path) -> u64 {
    let said = done(&["store", "verify", "--store", "camera"], folder);
    let words: Vec<&str> = said.split_whitespace().collect();
    let place = words.iter().position(|word| *word == "frames").unwrap_or_else(|| panic!("{said}"));
    words[place - 1].parse().unwrap()
}

/// Kills the two brokers in turn, under load, at different moments. `MEZ_KILLS=100 cargo
/// test -p mez-cli --test resuming -- --nocapture` kills 100 times, and prints the account.
#[test]
fn who_resumes_knows_of_every_frame_whoever_is_killed() {
    let asked: Option<u64> = std::env::var("MEZ_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills = asked.unwrap_or(4);
    let folder = tempfile::tempdir().unwrap();
    let (site, edge) = site(folder.path());
    let mut brokers = Brokers { edge: Some(edge), camera: Some(site.camera()) };
    let programs = [
        ("fill", program(&site, Resume::Fill, None)),
        ("every", program(&site, Resume::Newest, Some(Deliver::Every))),
        ("newest", program(&site, Resume::Newest, None)),
    ];
    let is_begun = || programs.iter().all(|(_, (account, ..))| !account.lock().unwrap().got.is_empty());
    (0..600).take_while(|_| !is_begun()).for_each(|_| sleep(Duration::from_millis(50)));
    assert!(is_begun(), "no frame in half a minute");
    for kill in 0..kills {
        sleep(Duration::from_millis(300 + kill * 617 % 900));
        // The other broker may be running or not. In every third round both are killed.
        let pause = Duration::from_millis(kill * 331 % 1_500);
        if kill % 3 == 2 {
            brokers.kill_edge();
            brokers.kill_camera();
            sleep(pause);
            brokers.edge = Some(site.edge());
            sleep(pause);
            brokers.camera = Some(site.camera());
        } else if kill % 3 == 1 {
            brokers.kill_edge();
            sleep(pause);
            brokers.edge = Some(site.edge());
        } else {
            brokers.kill_camera();
            sleep(pause);
            brokers.camera = Some(site.camera());
        }
    }
    sleep(Duration::from_secs(3));
    // The frames that the log holds now, and can be read from here on.
    brokers.kill_camera();
    let in_log = frames(folder.path());
    brokers.camera = Some(site.camera());
    sleep(Duration::from_secs(3));
    let held = held(&site);
    assert!(held.len() as u64 >= in_log, "{} held, {in_log} in the camera's log", held.len());
    for (_, (_, _, stop)) in &programs {
        *stop.lock().unwrap() = true;
    }
    for (name, (account, thread, _)) in programs {
        thread.join().unwrap();
        let account = account.lock().unwrap().clone();
        let (first, last) = (account.got[0], *account.got.last().unwrap());
        let published: Vec<_> = held.iter().filter(|(id, _)| *id >= first && *id <= last).copied().collect();
        let untold = account.untold(&published);
        let count = |reason| account.told.iter().filter(|told| told.reason == reason).count();
        println!(
            "{name}: {kills} kills, edge lost {} times; held {}, delivered {}, counted {}, stretches told: \
             camera_restarted {}, camera_absent {}, other {}; untold {}",
            account.lost_edge,
            published.len(),
            account.got.len(),
            published.iter().filter(|(id, _)| account.counted.contains(id)).count(),
            count(NotHeldReason::CameraRestarted),
            count(NotHeldReason::CameraAbsent),
            account.told.len() - count(NotHeldReason::CameraRestarted) - count(NotHeldReason::CameraAbsent),
            untold.len(),
        );
        assert_eq!(untold, [], "{name}");
        if name == "fill" {
            let got: BTreeSet<_> = account.got.iter().copied().collect();
            let missing: Vec<_> = published.iter().filter(|(id, _)| !got.contains(id)).collect();
            assert_eq!(missing, Vec::<&(FrameId, Timestamp)>::new(), "the camera or the edge has them");
            assert!(account.got.len() >= published.len());
        }
    }
}
