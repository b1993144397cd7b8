//! Decides which connection may be which camera, and which start takes over.

use super::applications::Applications;
use super::camera::Camera;
use super::connection::{Connection, Session};
use super::roster::Roster;
use super::types::EdgeOutput;
use crate::broker::epochs::Claims;
use crate::broker::{EPOCH_JUMP_MAX, EPOCH_MAX, LinkId, NUMBER_MAX};
use crate::frame::{Epoch, FrameId, Sequence};
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};
use crate::wire::{Hello, Inquiry, Message, RefuseCode, Standing, VERSION, Welcome};

/// What becomes of a connection that says which camera it is.
pub(super) enum Judgement {
    /// The connection is refused.
    Refused {
        /// Why.
        code: RefuseCode,
        /// The reason for the refusal, for people.
        text: String,
    },
    /// Another start has this epoch or a later one. The camera must begin a later epoch and connect again.
    EpochTaken {
        /// The latest epoch.
        newest: Epoch,
    },
    /// The connection becomes that of the camera.
    Accepted {
        /// The connection that it replaces, if there is one.
        replaces: Option<LinkId>,
    },
}

/// Decides which starts of cameras are accepted, and what accepted cameras are told.
pub(super) struct Sessions {
    /// How far the epochs of cameras are believed.
    claims: Claims,
    /// The software of this edge, for people.
    software: String,
}

impl Sessions {
    pub(super) fn new(software: String) -> Self {
        Self { claims: Claims::default(), software }
    }

    /// A camera is forgotten, so that its next start may have a lower or a much higher epoch.
    pub(super) fn handle_reset(&mut self, camera: &CameraName) {
        self.claims.vouch(camera);
    }

    /// A connection says which camera it is.
    pub(super) fn handle_hello(&mut self, roster: &Roster, id: LinkId, hello: &Hello) -> Option<Judgement> {
        let link = roster.connections.get(id)?;
        Some(judge(roster, link, hello, &mut self.claims))
    }

    /// How a connection would be judged as the camera that it asks about, whatever its epoch. `wall` is the wall clock of this edge.
    pub(super) fn standing(
        &self,
        roster: &Roster,
        id: LinkId,
        inquiry: &Inquiry,
        wall: Timestamp,
    ) -> Option<Standing> {
        let link = roster.connections.get(id)?;
        let (cameras, name) = (&roster.cameras, &inquiry.camera);
        let known = cameras.get(name);
        let holder = known.and_then(|known| roster.link_of(known));
        let newest = known.map(|known| known.newest_start.0).unwrap_or_default();
        let refusal = is_permitted(link, name)
            .or_else(|| known.and_then(|known| is_derived(known, name)))
            .or_else(|| is_exhausted(name, newest))
            .or_else(|| holder.and_then(|holder| is_of_another(holder, link, name)))
            .or_else(|| if known.is_none() { is_full(roster) } else { None });
        let software = self.software.clone();
        let is_connected = holder.is_some_and(|holder| holder.peer.identity == link.peer.identity);
        Some(Standing { version: VERSION, wall, is_connected, refusal, software })
    }

    /// Makes a connection that of its camera, after the previous holder of the name
    /// is gone. The camera is told its newest frame at this edge, and the demand.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        roster: &mut Roster,
        applications: &Applications,
        id: LinkId,
        hello: Hello,
    ) -> Vec<EdgeOutput> {
        let Some(link) = roster.connections.get(id) else { return Vec::new() };
        let Hello { camera, epoch, attempt, anchor, .. } = hello;
        let identity = link.peer.identity.clone();
        let mut outputs = applications.introduce(roster, &camera, &identity, (epoch, anchor), None);
        self.claims.settled(&camera);
        roster.handle_taken_in(now, id, Session { camera: camera.clone(), epoch, attempt, anchor });
        let known = roster.cameras.get(&camera);
        let newest = known.and_then(|known| known.replica.newest()).map(|(newest, _)| newest);
        outputs.push(self.welcome(roster, id, newest));
        outputs.push(EdgeOutput::Started { camera: camera.clone(), link: id, epoch, anchor });
        outputs.push(EdgeOutput::CameraChanged { camera: camera.clone(), up: true, reason: None });
        outputs.extend(applications.ask(roster, &camera));
        outputs.extend(roster.let_rest(&camera));
        outputs
    }

    /// Tells a camera that its epoch is taken, and which epoch is the newest.
    pub(super) fn tell_taken(&self, roster: &Roster, link: LinkId, newest: Epoch) -> EdgeOutput {
        // The number of a frame that no camera ever publishes tells this.
        self.welcome(roster, link, Some(FrameId { epoch: newest, sequence: Sequence(NUMBER_MAX) }))
    }

    fn welcome(&self, roster: &Roster, link: LinkId, newest: Option<FrameId>) -> EdgeOutput {
        let (frame_bytes_max, software) = (roster.cameras.frame_bytes_max(), self.software.clone());
        let welcome = Welcome { version: VERSION, newest, frame_bytes_max, software };
        EdgeOutput::Send { link, message: Message::Welcome(welcome) }
    }
}

/// Judges a connection's claim to be a camera, by what is known of that camera.
fn judge(roster: &Roster, link: &Connection, hello: &Hello, claims: &mut Claims) -> Judgement {
    let cameras = &roster.cameras;
    let Hello { camera: name, epoch, anchor, .. } = hello;
    let known = cameras.get(name);
    let newest_start = known.map(|known| known.newest_start);
    let holder = known.and_then(|known| roster.link_of(known));
    let refused = may_be(link, hello)
        .or_else(|| known.and_then(|known| is_derived(known, name)))
        .or_else(|| disbelieves(hello, newest_start.map(|(newest, _)| newest).unwrap_or_default(), claims))
        .or_else(|| holder.and_then(|holder| keeps_name(holder, link, hello)));
    if let Some((code, text)) = refused {
        return Judgement::Refused { code, text };
    }
    match newest_start {
        // Two starts with the same epoch would give different frames the same number. Until the later start
        // comes with another epoch, the holder keeps the name.
        Some((newest, its)) if *epoch < newest || *epoch == newest && *anchor != its => {
            return Judgement::EpochTaken { newest };
        }
        None => {
            if let Some((code, text)) = is_full(roster) {
                return Judgement::Refused { code, text };
            }
        }
        _ => {}
    }
    Judgement::Accepted { replaces: known.and_then(|known| known.link) }
}

/// Why a connection cannot be this camera, whatever is known of the camera.
fn may_be(link: &Connection, hello: &Hello) -> Option<(RefuseCode, String)> {
    let Hello { version, camera, epoch, .. } = hello;
    if *version != VERSION {
        let text = format!(
            "the edge speaks version {VERSION} of the wire format, the camera version {version}; update the older one"
        );
        return Some((RefuseCode::Version, text));
    }
    if epoch.0 > NUMBER_MAX {
        let text = format!("the epoch {} is above the limit, {NUMBER_MAX}", epoch.0);
        return Some((RefuseCode::Protocol, text));
    }
    is_permitted(link, camera)
}

/// Why an identity cannot be this camera, if its certificate does not allow the name.
fn is_permitted(link: &Connection, camera: &CameraName) -> Option<(RefuseCode, String)> {
    let is_permitted = link.peer.cameras.iter().any(|pattern| pattern.matches(camera));
    (!is_permitted).then(|| {
        let identity = &link.peer.identity;
        let text =
            format!("the identity {identity} may not publish camera {camera}; enrol an identity that may");
        (RefuseCode::NotPermitted, text)
    })
}

/// Why no camera can have this name, if applications publish a stream under it at this edge.
fn is_derived(known: &Camera, name: &CameraName) -> Option<(RefuseCode, String)> {
    let derived = known.derived.as_ref()?;
    let text = format!(
        "{name} is a stream that {} publishes at this edge; give the camera another name, or stop the publisher and run `mez cameras forget \
         {name}` on the edge's host",
        derived.deriving.owner
    );
    Some((RefuseCode::NameHeld, text))
}

/// Why a camera that the edge does not know is refused, if there is no room for it.
fn is_full(roster: &Roster) -> Option<(RefuseCode, String)> {
    let cameras = &roster.cameras;
    (cameras.room() == 0).then(|| {
        let text = format!(
            "the edge knows {} cameras, which is its limit; raise --cameras-max of the edge",
            cameras.cameras_max()
        );
        (RefuseCode::Full, text)
    })
}

/// Why no start of the camera can follow the newest one that the edge knows, if none can.
fn is_exhausted(camera: &CameraName, known: Epoch) -> Option<(RefuseCode, String)> {
    (known > EPOCH_MAX).then(|| {
        let text = format!(
            "the edge's last epoch of camera {camera} is {}, which no camera reaches: somebody else has used the camera's identity; run `mez \
             cameras reset {camera}` on the edge's host",
            known.0
        );
        (RefuseCode::NameHeld, text)
    })
}

/// Why a start is refused because of its epoch.
fn disbelieves(hello: &Hello, known: Epoch, claims: &mut Claims) -> Option<(RefuseCode, String)> {
    let Hello { camera, epoch, .. } = hello;
    if let Some(refused) = is_exhausted(camera, known) {
        return Some(refused);
    }
    (!claims.admits(camera, known, *epoch)).then(|| {
        let text = format!(
            "epoch {} is more than {EPOCH_JUMP_MAX} above the last epoch of camera {camera} that the edge knows: the camera's counter of starts is \
             damaged, or somebody else uses its identity; if this is the right camera, run `mez cameras reset {camera}` on the edge's host",
            epoch.0
        );
        (RefuseCode::Protocol, text)
    })
}

/// Why a camera's name is refused, if a connection of another identity holds it.
fn is_of_another(
    holder: &Connection,
    link: &Connection,
    camera: &CameraName,
) -> Option<(RefuseCode, String)> {
    (holder.peer.identity != link.peer.identity).then(|| {
        let text = format!(
            "{} is already connected as camera {camera}; stop that program, or choose another name",
            holder.peer.identity
        );
        (RefuseCode::NameHeld, text)
    })
}

/// Why a new connection does not replace the holder of the camera's name.
fn keeps_name(holder: &Connection, link: &Connection, hello: &Hello) -> Option<(RefuseCode, String)> {
    let Hello { camera, epoch, attempt, anchor, .. } = hello;
    if let Some(refused) = is_of_another(holder, link, camera) {
        return Some(refused);
    }
    let is_newer = |held: &Session| {
        let same_start = (held.epoch, held.anchor) == (*epoch, *anchor);
        held.epoch > *epoch || same_start && held.attempt >= *attempt
    };
    holder.session.as_ref().is_some_and(is_newer).then(|| {
        let text = format!("a newer start of camera {camera} is connected");
        (RefuseCode::Replaced, text)
    })
}
