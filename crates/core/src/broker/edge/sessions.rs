//! Who may be which camera, and who takes over.

use crate::broker::{EPOCH_JUMP_MAX, EPOCH_MAX, LinkId, NUMBER_MAX};
use crate::buffer::payload_within;
use crate::clock::ClockEstimator;
use crate::contract::settle::Verdict;
use crate::frame::{Epoch, FrameId, Sequence};
use crate::log::{LogConfig, LogWriter, Record, log};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant};
use crate::wire::{
    Abilities, Demand, DiskStatus, Hello, Message, Outlook, RefuseCode, Status, VERSION, Welcome,
};
use std::time::Duration;

use super::chains::{Chains, chain_bytes_max};
use super::decoding::Decoding;
use super::frames::{Arriving, Taken};
use super::{CameraCounters, EdgeBroker, EdgeOutput, Forgotten, Peer, SubscriptionId};

/// How long a connection may take to say who it is.
pub(super) const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// What a record costs in a log besides its payload, rounded up.
const RECORD_BYTES: u64 = 512;

/// A connection.
pub(super) struct Link {
    pub(super) peer: Peer,
    /// Whom it has been taken in as.
    pub(super) session: Option<Session>,
    /// What it can do, once it has said so or has come to speak of other things.
    pub(super) abilities: Option<Abilities>,
    pub(super) opened: Instant,
    pub(super) heard: Instant,
    pub(super) ping_due: Instant,
    pub(super) clock: ClockEstimator,
    pub(super) arriving: Vec<Arriving>,
    /// How far its frames of chains have been taken.
    pub(super) taken: Option<Taken>,
    /// When a frame that is whole has waited long enough.
    pub(super) held_until: Option<Instant>,
    /// It is over, and its last frames are being taken: nothing more can be said on it.
    pub(super) over: bool,
}

impl Link {
    pub(super) fn new(now: Instant, peer: Peer) -> Self {
        Self {
            peer,
            session: None,
            abilities: None,
            opened: now,
            heard: now,
            ping_due: now,
            clock: ClockEstimator::default(),
            arriving: Vec::new(),
            taken: None,
            held_until: None,
            over: false,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) camera: CameraName,
    pub(super) epoch: Epoch,
    pub(super) attempt: u64,
    pub(super) anchor: ClockAnchor,
}

/// A camera that is or was connected.
pub(super) struct Camera {
    pub(super) log: LogWriter,
    pub(super) decoding: Decoding,
    /// Its frames as they come, once somebody has wanted them.
    pub(super) chains: Option<Box<Chains>>,
    pub(super) link: Option<LinkId>,
    /// Whether the link was heard of lately.
    pub(super) silent: bool,
    /// When the last connection was heard of last, once it is over.
    pub(super) gone: Option<Instant>,
    pub(super) identity: String,
    /// The highest epoch that was taken in, and the anchor of the start that it belongs to: no two starts take theirs
    /// at the same moment, so the anchor tells them apart where the epoch does not.
    pub(super) newest_start: (Epoch, ClockAnchor),
    pub(super) demand: Demand,
    pub(super) status: Status,
    /// How its own log on disk is doing, if it said so on this connection.
    pub(super) disk: Option<DiskStatus>,
    /// What it said that it can do.
    pub(super) outlook: Outlook,
    /// Since when it says that no rung keeps the contracts that lead.
    pub(super) infeasible_since: Option<Instant>,
    /// What it said becomes of each contract of the demand, and since when. Empty: nothing.
    pub(super) settled: Vec<(Option<Verdict>, Instant)>,
    pub(super) counters: CameraCounters,
}

impl EdgeBroker {
    /// Decides whether a connection becomes the camera's.
    pub(super) fn take_in(&mut self, now: Instant, id: LinkId, hello: Hello) {
        let Hello { version, camera: name, epoch, attempt, anchor, .. } = hello;
        let Some(link) = self.links.get(&id) else { return };
        let peer = link.peer.clone();
        if version != VERSION {
            let text = format!(
                "the edge speaks version {VERSION} of the wire format, the camera version {version}; update the older one"
            );
            return self.refuse(id, RefuseCode::Version, text);
        }
        if epoch.0 > NUMBER_MAX {
            let text = format!("the epoch {} is above the last one, {NUMBER_MAX}", epoch.0);
            return self.refuse(id, RefuseCode::Protocol, text);
        }
        if !peer.cameras.iter().any(|pattern| pattern.matches(&name)) {
            let text = format!("the identity {} may not be camera {name}; enrol one that may", peer.identity);
            return self.refuse(id, RefuseCode::NotPermitted, text);
        }
        if let Some((code, text)) = self.disbelieves(&name, epoch) {
            return self.refuse(id, code, text);
        }
        let holder = self.cameras.get(&name).and_then(|camera| camera.link);
        if let Some(holder_link) = holder.and_then(|link| self.links.get(&link)) {
            if holder_link.peer.identity != peer.identity {
                let holder = &holder_link.peer.identity;
                let text =
                    format!("camera {name} is held by {holder}; stop that one, or choose another name");
                return self.refuse(id, RefuseCode::NameHeld, text);
            }
            let newer = holder_link.session.as_ref().is_some_and(|held| {
                let same_start = (held.epoch, held.anchor) == (epoch, anchor);
                held.epoch > epoch || same_start && held.attempt >= attempt
            });
            if newer {
                let text = format!("a newer start of camera {name} is connected");
                return self.refuse(id, RefuseCode::Replaced, text);
            }
        }
        if let Some(camera) = self.cameras.get(&name) {
            let (newest, its_anchor) = camera.newest_start;
            if epoch < newest || epoch == newest && anchor != its_anchor {
                return self.ask_for_later_epoch(id, newest);
            }
        } else if self.cameras.len() >= self.config.cameras_max {
            let text = format!(
                "the edge knows {} cameras, as many as it may; raise its --cameras-max",
                self.config.cameras_max
            );
            return self.refuse(id, RefuseCode::Full, text);
        }
        if let Some(holder) = holder {
            let text = format!("a newer connection of camera {name} has taken over");
            self.refuse(holder, RefuseCode::Replaced, text);
        }
        self.know(&name, &peer.identity, (epoch, anchor));
        self.claims.settled(&name);
        let camera = self.cameras.get_mut(&name).expect("the camera was made known above");
        camera.link = Some(id);
        camera.silent = false;
        camera.identity = peer.identity;
        camera.newest_start = (epoch, anchor);
        camera.demand.contracts.clear();
        camera.disk = None;
        (camera.outlook, camera.infeasible_since) = (Outlook::default(), None);
        camera.settled.clear();
        let newest = camera.log.last().map(|(id, _)| id);
        if let Some(link) = self.links.get_mut(&id) {
            link.session = Some(Session { camera: name.clone(), epoch, attempt, anchor });
            link.ping_due = now;
        }
        self.shares.join(&name);
        self.welcome(id, newest);
        let camera = name.clone();
        self.outputs.push_back(EdgeOutput::Started { camera, link: id, epoch, anchor });
        self.outputs.push_back(EdgeOutput::CameraChanged { camera: name.clone(), up: true, reason: None });
        self.update_demand(&name);
        self.put_waiting(now);
    }

    /// Why a start with this epoch is not taken in, if it cannot have it.
    fn disbelieves(&mut self, name: &CameraName, epoch: Epoch) -> Option<(RefuseCode, String)> {
        let known = self.cameras.get(name).map(|camera| camera.newest_start.0).unwrap_or_default();
        if known > EPOCH_MAX {
            let text = format!(
                "what the edge holds of camera {name} ends with epoch {}, which no camera reaches: somebody else has used its \
                 identity; run `mez cameras reset {name}` on the edge's host",
                known.0
            );
            return Some((RefuseCode::NameHeld, text));
        }
        (!self.claims.admits(name, known, epoch)).then(|| {
            let text = format!(
                "epoch {} lies more than {EPOCH_JUMP_MAX} above any that the edge knows of camera {name}: its counter of starts is damaged, or \
                 somebody else uses its identity; for the right camera run `mez cameras reset {name}` on the edge's host",
                epoch.0
            );
            (RefuseCode::Protocol, text)
        })
    }

    /// Forgets all that is known of a camera, so that its next start is taken in whatever its epoch. Its connection is closed, and the subscriptions
    /// that read it end ([`EdgeOutput::Ended`]): what comes next may come before what they were given. Gives what was
    /// known; nothing of a camera that is not. Whoever keeps the log on disk puts that aside.
    pub fn handle_reset(&mut self, name: &CameraName) -> Option<Forgotten> {
        self.claims.vouch(name);
        let camera = self.cameras.get(name)?;
        let (epoch, link) = (camera.newest_start.0, camera.link);
        let forgotten = Forgotten {
            epoch,
            identity: camera.identity.clone(),
            connected: link.is_some() && !camera.silent,
        };
        if let Some(link) = link {
            self.outputs.push_back(EdgeOutput::Close { link });
            self.forget(link, "it was reset");
        }
        let ended: Vec<SubscriptionId> = self
            .subscriptions
            .iter()
            .filter(|(_, entry)| entry.pattern.matches(name))
            .map(|(id, _)| *id)
            .collect();
        for subscription in ended {
            self.subscriptions.remove(&subscription);
            self.outputs.push_back(EdgeOutput::Ended { subscription, camera: name.clone() });
        }
        self.cameras.remove(name);
        self.fetched.forget(name);
        self.share_out();
        self.update_all_demands();
        Some(forgotten)
    }

    /// Two starts with the same epoch would number different frames alike. The later one learns that the epoch is taken
    /// from a frame that no camera ever publishes, begins another, and comes again. Until then the name stays with
    /// whoever has it.
    fn ask_for_later_epoch(&mut self, id: LinkId, taken: Epoch) {
        self.welcome(id, Some(FrameId { epoch: taken, sequence: Sequence(NUMBER_MAX) }));
        self.outputs.push_back(EdgeOutput::Close { link: id });
        self.forget(id, "its epoch is taken");
    }

    fn welcome(&mut self, link: LinkId, newest: Option<FrameId>) {
        let welcome = Welcome {
            version: VERSION,
            newest,
            frame_bytes_max: self.frame_bytes_max(),
            software: self.config.software.clone(),
        };
        self.send(link, Message::Welcome(welcome));
    }

    /// The largest payload that is taken now: a camera's log has to hold it.
    pub(super) fn frame_bytes_max(&self) -> u32 {
        let share = self.share();
        let fits = payload_within((share - chain_bytes_max(share)).saturating_sub(RECORD_BYTES) as usize);
        let fits = u32::try_from(fits).unwrap_or(u32::MAX);
        self.config.frame_bytes_max.min(fits)
    }

    /// What the frames of one camera may take in memory, in bytes.
    pub(super) fn share(&self) -> u64 {
        self.config.log_bytes_max / (self.cameras.len() as u64).max(1)
    }

    /// Gives every camera its share.
    pub(super) fn share_out(&mut self) {
        let share = self.share();
        for camera in self.cameras.values_mut() {
            let of_chains = if camera.chains.as_ref().is_some_and(|chains| chains.is_wanted()) {
                chain_bytes_max(share)
            } else {
                0
            };
            if let Some(chains) = &mut camera.chains {
                chains.set_bytes_max(of_chains);
            }
            camera.log.set_bytes_max(share - of_chains);
        }
    }

    /// Takes cameras up again that an earlier run of this edge knew: for each the epoch and the anchor of its last start, and the
    /// frames that a log on disk gave back. To be called before anything else; cameras beyond the limit are left out.
    /// Returns how many frames found no place.
    pub fn restore(&mut self, cameras: Vec<(CameraName, (Epoch, ClockAnchor), Vec<Record>)>) -> u64 {
        let room = self.config.cameras_max.saturating_sub(self.cameras.len());
        // All are made known first: each takes its share of the memory.
        for (camera, start, _) in cameras.iter().take(room) {
            self.know(camera, "", *start);
        }
        let mut left_out = 0;
        for (camera, _, records) in cameras {
            let Some(known) = self.cameras.get_mut(&camera) else {
                left_out += records.len() as u64;
                continue;
            };
            for record in records {
                left_out += u64::from(known.log.append_record(record).is_err());
            }
        }
        left_out
    }

    /// Makes a log for a camera that was not known, and tells the subscriptions that it matches.
    fn know(&mut self, name: &CameraName, identity: &str, start: (Epoch, ClockAnchor)) {
        if self.cameras.contains_key(name) {
            return;
        }
        let (writer, reader) =
            log(LogConfig::with_bytes_max(self.config.log_bytes_max / (self.cameras.len() as u64 + 1)));
        let camera = Camera {
            log: writer,
            decoding: Decoding::default(),
            chains: None,
            link: None,
            silent: false,
            gone: None,
            identity: identity.into(),
            newest_start: start,
            demand: Demand::default(),
            status: Status::default(),
            disk: None,
            outlook: Outlook::default(),
            infeasible_since: None,
            settled: Vec::new(),
            counters: CameraCounters::default(),
        };
        self.cameras.insert(name.clone(), camera);
        self.share_out();
        let wanting = self.subscriptions.iter().filter(|(_, entry)| entry.pattern.matches(name));
        let wanting: Vec<_> = wanting.map(|(subscription, entry)| (*subscription, entry.chains)).collect();
        for (subscription, chains) in wanting {
            let (camera, log) = (name.clone(), reader.clone());
            self.outputs.push_back(EdgeOutput::Attach { subscription, camera, log });
            self.attach_chains(subscription, name, chains);
        }
    }

    pub(super) fn refuse(&mut self, link: LinkId, code: RefuseCode, text: String) {
        self.send(link, Message::Refuse { code, text: text.clone() });
        self.outputs.push_back(EdgeOutput::Close { link });
        self.forget(link, &text);
    }

    pub(super) fn forget(&mut self, id: LinkId, reason: &str) {
        let cancelled = self.take_last(id);
        let Some(link) = self.links.remove(&id) else { return };
        let heard = link.heard;
        let Some(name) = link.session.map(|session| session.camera) else { return };
        if let Some(camera) = self.cameras.get_mut(&name)
            && camera.link == Some(id)
        {
            camera.link = None;
            camera.gone = Some(heard);
            camera.silent = false;
            camera.counters.cancelled += cancelled;
            (camera.outlook, camera.infeasible_since) = (Outlook::default(), None);
            camera.settled.clear();
            self.shares.leave(&name);
            let reason = Some(reason.into());
            self.outputs.push_back(EdgeOutput::ViewChanged { camera: name.clone() });
            self.outputs.push_back(EdgeOutput::CameraChanged { camera: name, up: false, reason });
        }
        self.forget_history(id);
    }

    pub(super) fn session(&self, link: LinkId) -> Option<&Session> {
        self.links.get(&link)?.session.as_ref()
    }

    /// The camera whose present connection this is.
    pub(super) fn camera_of(&mut self, link: LinkId) -> Option<&mut Camera> {
        let name = &self.links.get(&link)?.session.as_ref()?.camera;
        self.cameras.get_mut(name).filter(|camera| camera.link == Some(link))
    }
}
