//! Simulates cameras, links, edges and applications on one virtual clock.
//!
//! The brokers, logs and sessions are those of `mez-core`, driven as by the real drivers. Hosts, links and applications are models. All random values
//! come from one seed, and simultaneous events happen in the order in which they were planned. So the same seed and the same calls give exactly the
//! same trace.
//!
//! ```
//! use mez_testbed::{ApplicationSpec, CameraSpec, World, secs};
//!
//! let mut world = World::seeded(7);
//! world.camera("dock/cam1", CameraSpec::default());
//! let application = world.application(ApplicationSpec::newest("dock/*"));
//! world.run(secs(5));
//! assert!(world.deliveries(application).len() > 40);
//! ```
//!
//! A world consists of parts that own their state. A part borrows the `Stage` (the moment, checks, trace, and future events) and whatever else a call
//! needs, such as its link. The part returns what the world has to do, and knows nothing else of the world. This file holds the parts and dispatches
//! events to them. The files of the last column act on what a part returns.
//!
//! | part | its files | the world's side |
//! | --- | --- | --- |
//! | a camera's host, its broker, codec and publisher | `camera/` | `cameras.rs` |
//! | an edge's host, its broker, decoders and door | `edge/` | `edges.rs` |
//! | attackers and other clients that come to a door | `visitors.rs` | `edges.rs` |
//! | links, and the media that links share | [`crate::link`], `network/` | `links.rs` |
//! | applications, their requests for the past, and their derived streams | `application/` | `applications.rs` |
//! | groups of workers that share records | `group/` | `groups.rs` |
//! | answers of applications | in `application/`, `edge/` and `camera/` | `answers.rs` |
//! | logs on the disks of cameras and edges | `storage.rs` | |
//! | thieves of cameras' identities | `thieves.rs` | `cameras.rs` |
//! | certificates and deny lists | `site.rs` | `members.rs` |
//! | the view for the rules | `watch.rs` | |
//!
//! `spec.rs` describes the parts. `action.rs` lists faults and changes, which `actions.rs` and
//! `moves.rs` carry out. `bug.rs` lists the bugs that tests can plant.
//!
//! [`World::run`] panics at the first breach of a rule of [`crate::check`], with the seed and the last events.

mod action;
mod actions;
mod answers;
mod application;
mod applications;
mod bug;
mod camera;
mod cameras;
mod edge;
mod edges;
mod events;
mod group;
mod groups;
mod links;
mod members;
mod moves;
mod network;
mod node;
mod site;
mod spec;
mod stage;
mod storage;
mod thieves;
mod visitors;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mez_core::profile::{ProfileHash, SizedProfile};
use mez_core::rights::Rights;

pub use self::action::{Action, By, Counter, Host, Member, SiteAction};
use self::application::Application;
pub use self::application::{Delivered, Told};
pub use self::bug::Bug;
pub use self::camera::CameraCounts;
use self::camera::CameraHost;
use self::edge::EdgeHost;
use self::events::{Event, EventQueue};
pub use self::group::GroupEvent;
use self::group::GroupHost;
use self::network::Network;
use self::node::{Node, Owner, Reader, Timer, Touched};
use self::site::Site;
pub use self::spec::{
    AnswerSpec, ApplicationId, ApplicationSpec, Ask, AttackSpec, CameraId, CameraSpec, CaptureTimes, Conduct,
    DeriveSpec, DiskSpec, EdgeId, EdgeSpec, GroupId, GroupSpec, Library, MediumId, MediumSpec, Mishaps,
    Resumes, RightsId, SourceVideo, TakeSpec, VisitorId, VisitorSpec, WorkerSpec,
};
use self::stage::stage;
use self::thieves::Thieves;
use self::visitors::Visitors;
use self::watch::{View, WATCH_INTERVAL};
use crate::check::{Checks, Violation};
use crate::disk::DiskBug;
pub use crate::payload::PAST_RUNG;
use crate::random::Random;
use crate::time::{HostClock, Moment, WALL_START_NANOS};
use crate::trace::Trace;

/// A world. See the [module](self).
pub struct World {
    seed: u64,
    now: Moment,
    random: Random,
    events: EventQueue,
    /// Nodes to which something happened at this moment.
    touched: Touched,
    network: Network,
    cameras: Vec<CameraHost>,
    edges: Vec<EdgeHost>,
    applications: Vec<Application>,
    groups: Vec<GroupHost>,
    visitors: Visitors,
    thieves: Thieves,
    /// The camera that each process belongs to.
    owners: BTreeMap<u64, usize>,
    runs: u64,
    subscriptions: u64,
    payloads: u64,
    actions: u64,
    wall_steps: u64,
    /// Profiles that contracts may name.
    profiles: BTreeMap<ProfileHash, SizedProfile>,
    /// Rights that edges may have.
    rights: Vec<Rights>,
    site: Site,
    checks: Checks,
    trace: Trace,
    /// Whether codecs and decoders occasionally fail and hang.
    codecs_fail: bool,
    bug: Option<Bug>,
    disk_bug: Option<DiskBug>,
}

/// A breach of a rule, with what is needed to investigate it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The world's seed.
    pub seed: u64,
    /// The breach.
    pub violation: Violation,
    /// The last events, one a line.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = std::thread::current();
        let test = test.name().unwrap_or("");
        writeln!(f, "{}", self.violation)?;
        writeln!(f, "seed {}; what happened last:\n{}", self.seed, self.trace)?;
        write!(f, "replay: MEZ_SEED={} cargo test -p mez-testbed {test}", self.seed)
    }
}

impl std::error::Error for Failure {}

/// Asserts that a run with a planted fault broke `rule`, and no other rule before.
pub fn noticed(planted: impl fmt::Debug, failure: Option<Box<Failure>>, rule: &str) {
    let failure = failure.unwrap_or_else(|| panic!("{planted:?} went unnoticed"));
    assert_eq!(failure.violation.rule, rule, "{planted:?} was taken for something else: {failure}");
}

impl World {
    /// A world with one edge that runs, and nothing else.
    pub fn seeded(seed: u64) -> Self {
        Self::seeded_with(seed, EdgeSpec::default())
    }

    /// A world with this first edge.
    pub fn seeded_with(seed: u64, edge: EdgeSpec) -> Self {
        let mut world = Self {
            seed,
            now: Moment::START,
            random: Random::seeded(seed),
            events: EventQueue::default(),
            touched: Touched::default(),
            network: Network::default(),
            cameras: Vec::new(),
            edges: Vec::new(),
            applications: Vec::new(),
            groups: Vec::new(),
            visitors: Visitors::default(),
            thieves: Thieves::default(),
            owners: BTreeMap::new(),
            runs: 0,
            subscriptions: 0,
            payloads: 0,
            actions: 0,
            wall_steps: 0,
            profiles: BTreeMap::new(),
            rights: Vec::new(),
            site: Site::new(),
            checks: Checks::default(),
            trace: Trace::default(),
            codecs_fail: true,
            bug: None,
            disk_bug: None,
        };
        world.edge(edge);
        world.events.push(Moment::START, Event::Watch);
        world
    }

    // ---- running ------------------------------------------------------------------------------------------

    /// Lets time pass.
    ///
    /// # Panics
    /// At the first breach of a rule, with a [`Failure`].
    pub fn run(&mut self, duration: Duration) -> &mut Self {
        if let Err(failure) = self.try_run(duration) {
            panic!("{failure}");
        }
        self
    }

    /// Lets time pass until a rule is broken.
    pub fn try_run(&mut self, duration: Duration) -> Result<(), Box<Failure>> {
        let until = self.now + duration;
        while self.checks.violation().is_none() {
            let Some((at, event)) = self.events.pop(until) else {
                self.now = until;
                self.checks.set_now(until);
                break;
            };
            self.now = at;
            self.checks.set_now(at);
            self.handle(event);
            self.settle();
        }
        match self.failure() {
            Some(failure) => Err(Box::new(failure)),
            None => Ok(()),
        }
    }

    /// The time since the beginning.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// The world's random numbers, for scenarios.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// A hash of all events so far.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// How many events were recorded so far.
    pub fn trace_entries(&self) -> u64 {
        self.trace.entries()
    }

    /// How often a wall clock was stepped.
    pub fn wall_steps(&self) -> u64 {
        self.wall_steps
    }

    /// The last events, one a line.
    pub fn trace_tail(&self, entries: usize) -> String {
        self.trace.tail(entries)
    }

    /// Sets whether codecs and decoders occasionally fail and hang. Default: they do.
    pub fn codecs_fail(&mut self, fail: bool) -> &mut Self {
        self.codecs_fail = fail;
        self
    }

    /// Plants a bug in the world itself, to show that a rule detects it.
    pub fn plant(&mut self, bug: Bug) -> &mut Self {
        self.bug = Some(bug);
        self
    }

    /// Panics if a rule is broken. Called after changes between two runs.
    fn report(&self) {
        if let Some(failure) = self.failure() {
            panic!("{failure}");
        }
    }

    fn failure(&self) -> Option<Failure> {
        let violation = self.checks.violation()?.clone();
        Some(Failure { seed: self.seed, violation, trace: self.trace.tail(60) })
    }

    /// Adds a profile that contracts may name. Returns its hash.
    pub fn profile(&mut self, profile: SizedProfile) -> ProfileHash {
        let hash = [self.profiles.len() as u8 + 1; 32];
        self.profiles.insert(hash, profile);
        hash
    }

    /// Adds rights that an edge may get with [`Action::Rights`].
    pub fn rights(&mut self, rights: Rights) -> RightsId {
        self.rights.push(rights);
        RightsId(self.rights.len() - 1)
    }

    // ---- creation -----------------------------------------------------------------------------------------

    fn draw_clock(&mut self) -> HostClock {
        // Hosts have been up for between a second and a month. Their wall clocks agree within a minute.
        let origin_nanos = self.random.within(1_000_000_000..=2_600_000_000_000_000);
        let drift_ppb = self.random.within(0..=100_000) as i64 - 50_000;
        let wall_nanos = WALL_START_NANOS + self.random.within(0..=60_000_000_000) - origin_nanos;
        HostClock { origin_nanos, drift_ppb, wall_nanos }
    }

    fn next_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }

    // ---- inside -------------------------------------------------------------------------------------------

    fn touch(&mut self, node: Node) {
        self.touched.touch(node);
    }

    /// All parts for reading, and the rules.
    fn view(&mut self) -> (View<'_>, &mut Checks) {
        let Self { now, cameras, edges, network, applications, groups, thieves, checks, .. } = self;
        (View { now: *now, cameras, edges, network, applications, groups, thieves }, checks)
    }

    /// Shows the rules the state of the world, as opposed to single events.
    fn watch(&mut self) {
        if self.bug == Some(Bug::SilenceHidden) {
            self.edges.iter_mut().for_each(|edge| edge.hear_all(self.now));
        }
        self.cameras.iter_mut().for_each(|camera| camera.note_held_back(self.now));
        let (view, checks) = self.view();
        view.watch(checks);
        for (index, edge) in self.edges.iter().enumerate() {
            if let Some(holds) = edge.door_holds() {
                self.checks.watch_door(index, &holds);
            }
            let shut = edge.process.is_none() || edge.is_frozen();
            self.visitors.watch(EdgeId(index), shut, self.now, &mut self.checks);
        }
    }

    fn is_frozen(&self, node: Node) -> bool {
        match node {
            Node::Camera(index) => self.network.is_frozen(self.cameras[index].link),
            Node::Edge(index) => self.edges[index].is_frozen(),
            Node::Link(_) | Node::Medium(_) | Node::Application(_) | Node::Group(_) => false,
        }
    }

    fn handle(&mut self, event: Event) {
        if let Some((node, later)) = event.needs().filter(|(node, _)| self.is_frozen(*node)) {
            debug_assert!(!later.is_zero(), "a moment in which {node:?} is frozen has to end");
            return self.events.push(self.now + later, event);
        }
        match event {
            Event::Timer(node) => self.handle_timer(node),
            Event::Publish { camera, run } => self.publish(camera, run),
            Event::Told { camera, run } => self.tell(camera, run),
            Event::LeftTold { camera, connection, frame } => self.left_told(camera, connection, frame),
            Event::Made { camera, run, frame, made } => self.made(camera, run, frame, *made),
            Event::Found { camera, run, ticket, query } => self.found(camera, run, ticket, query),
            Event::PastMade { camera, run, ticket, made } => self.past_made(camera, run, ticket, *made),
            Event::Answered { application, request, answer } => {
                self.applications[application].handle_answer(request, *answer, &mut stage!(self));
            }
            Event::Decoded { edge, run, camera, decoder, fails } => {
                self.decoded(edge, run, (&camera, decoder), fails);
            }
            Event::Stills { edge, run, camera } => {
                self.with_edge_host(edge, |edge, stage| edge.handle_stills(run, &camera, stage));
            }
            Event::Still { reader: Reader::Application(application), made } => {
                self.applications[application].handle_still(*made, &mut stage!(self));
            }
            Event::Still { reader: Reader::Group(group), made } => {
                self.groups[group].handle_still(*made, &mut stage!(self));
            }
            Event::Worker { group, worker, step } => self.worker_goes_on(group, worker, step),
            Event::Group { group, run } => self.groups[group].handle_timer(run, &mut stage!(self)),
            Event::EpochPersisted { camera, run, above } => self.raise_epoch(camera, run, above),
            Event::Store { owner, run } => self.handle_store(&owner, run),
            Event::Wake { application } => self.touch(Node::Application(application)),
            Event::Ready { application, frames } => {
                self.with_application(application, |known, edge, stage| {
                    known.handle_done(frames, edge, stage);
                })
            }
            Event::Look { application, subscription } => {
                self.applications[application].look(subscription, &mut stage!(self));
            }
            Event::Contract { application, subscription } => {
                self.with_application(application, |known, edge, stage| {
                    known.look_at_contract(subscription, edge, stage);
                });
            }
            Event::Ask { application, ask } => self.ask(application, *ask),
            Event::Took { application, took } => self.took(application, &took),
            Event::Derived { application, made } => self.derived(application, *made),
            Event::AnswerMade { application, made } => self.answer_made(application, *made),
            Event::TakeAnswer { camera, run } => self.take_answer(camera, run),
            Event::Attack(spec) => self.attacked(spec),
            Event::Visit { visitor, attempt, step } => self.visited(visitor, attempt, step),
            Event::ListWritten { edge } => self.read_list(edge),
            Event::Action(action) => self.apply(action),
            Event::Watch => {
                self.watch();
                self.events.push(self.now + WATCH_INTERVAL, Event::Watch);
            }
        }
    }

    /// Runs the writer of a log on disk.
    fn handle_store(&mut self, owner: &Owner, run: u64) {
        match owner {
            Owner::Camera(index) => {
                let frozen = self.is_frozen(Node::Camera(*index));
                self.cameras[*index].handle_store(run, frozen, &mut stage!(self));
            }
            Owner::Edge(index, camera) => self.edges[*index].handle_store(camera, run, &mut stage!(self)),
        }
    }

    fn handle_timer(&mut self, node: Node) {
        let now = self.now;
        let Some(timer) = self.timer(node) else { return };
        if timer.armed != now {
            // The timer was set to another moment after this event was planned.
            return;
        }
        timer.armed = Moment::NEVER;
        if self.is_frozen(node) {
            return;
        }
        match node {
            Node::Camera(index) => {
                let (camera, _, stage) = self.camera_at(index);
                camera.handle_timeout(&stage);
            }
            Node::Edge(index) => self.edges[index].handle_timeout(&mut stage!(self)),
            Node::Link(index) => self.network.link_mut(index).handle_timeout(now),
            Node::Medium(_) | Node::Application(_) | Node::Group(_) => {}
        }
        self.touch(node);
    }

    /// Processes the outputs of all nodes, until no node has any more at this moment.
    fn settle(&mut self) {
        let mut steps = 0;
        while let Some(node) = self.touched.pop() {
            match node {
                Node::Link(index) => self.drain_link(index),
                Node::Medium(index) => self.network.drain_medium(index, &mut stage!(self)),
                Node::Camera(index) => self.drain_camera(index),
                Node::Edge(index) => self.drain_edge(index),
                Node::Application(index) => self.serve_application(index),
                Node::Group(index) => self.serve_group(index),
            }
            self.arm(node);
            steps += 1;
            if !self.checks.moment_goes_on(steps) {
                self.touched.clear();
            }
        }
    }

    /// Sets a node's timer to when the node is due.
    fn arm(&mut self, node: Node) {
        if self.is_frozen(node) {
            return;
        }
        let due = match node {
            Node::Camera(index) => self.cameras[index].due(),
            Node::Edge(index) => self.edges[index].due(),
            Node::Link(index) => self.network.link(index).poll_timeout(),
            Node::Medium(index) => self.network.medium_due(index),
            Node::Application(_) | Node::Group(_) => return,
        };
        let now = self.now;
        let Some(timer) = self.timer(node) else { return };
        let due = due.max(now);
        let (changed, spins) = timer.arm(due, now);
        if changed {
            self.events.push(due, Event::Timer(node));
        }
        self.checks.timer_spins(spins, || format!("{node:?}"));
    }

    fn timer(&mut self, node: Node) -> Option<&mut Timer> {
        match node {
            Node::Camera(index) => Some(&mut self.cameras[index].timer),
            Node::Edge(index) => Some(&mut self.edges[index].timer),
            Node::Link(index) => Some(self.network.link_timer(index)),
            Node::Medium(index) => Some(self.network.medium_timer(index)),
            Node::Application(_) | Node::Group(_) => None,
        }
    }
}
