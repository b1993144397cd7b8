//! Lists the bugs that a test can plant in a world, to show that a rule detects each.

/// A deliberate error of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// One byte of every seventh frame's payload changes in transit.
    AlteredBytes,
    /// Frame headers lose their ranges of skipped frames.
    LostSkipRanges,
    /// An application is given one frame a second time.
    FrameAgain,
    /// The camera is never told that its frames are not wanted any more.
    DemandKept,
    /// Every twentieth frame is sent a second time.
    SentTwice,
    /// The edge's readings of its clock are 30 ms wrong.
    ClockWrong,
    /// A camera connects only once.
    NoRedial,
    /// Every twentieth delivery states one skipped frame too many.
    Miscounted,
    /// A frame counts as sent before its last bytes have left.
    SentTooSoon,
    /// The camera broker is not told of nine successive frames of every fifty, until a later frame.
    FramesKeptBack,
    /// Links queue a hundred times as many bytes as they should, and senders do not bound their bytes in flight.
    LongQueue,
    /// A reply arrives altered.
    ReplyAltered,
    /// A camera's timer fires, and the broker does not handle it.
    TimerIgnored,
    /// A camera's log has four times its budget.
    LogTooLarge,
    /// Every fifth frame of the past is passed over.
    PastWithHoles,
    /// A reading of the past is given the bytes of another frame.
    PastMixedUp,
    /// A frame of the past counts as sent as soon as it begins, so the link is never idle between frames of the past.
    PastHurries,
    /// An absent camera is treated like a camera that holds no frames.
    AbsenceTakenForNothing,
    /// Applications are not told of spans of which no frames are held.
    HolesUntold,
    /// Every third request for the past is answered with nothing, and the camera is not asked.
    PastNotAsked,
    /// A camera's codec is not told which frames were lost.
    LossForgotten,
    /// A camera's link continues with a frame that the broker has cancelled.
    CancelIgnored,
    /// A camera learns 100 ms late that the last byte of a frame has left.
    LeftUntold,
    /// An edge's decoder makes a still of every frame, even if the frame cannot be decoded.
    UndecodableShown,
    /// A shared medium occasionally forgets to report that a piece was transmitted.
    PieceForgotten,
    /// Cameras never learn of a cap.
    ShareUntold,
    /// An edge accepts every epoch that a camera claims.
    EpochUnbounded,
    /// A reset closes the connection, but the edge keeps the epoch.
    ResetKeepsEpoch,
    /// An edge holds a frame for every stalled application, even without a share of memory.
    HeldWithoutShare,
    /// Applications are always told that their contract is kept, and nothing else.
    AllIsWell,
    /// A full door refuses newcomers, instead of closing a waiting connection.
    NobodyMakesRoom,
    /// All connections at a door count as coming from one address.
    AddressesMixedUp,
    /// Connections that the door drops are not closed.
    DroppedKept,
    /// A session is not told of its application's new contract. The broker is told.
    UpdateForgotten,
    /// The frames skipped at the end of a session are not reported.
    RestForgotten,
    /// A session is not told the accuracy that its application measured.
    AccuracyForgotten,
    /// A session is not told when its application took frames.
    TakenForgotten,
    /// Edges are told all the time that bytes of frames arrive, even if a link carries nothing.
    SilenceHidden,
    /// A session that was asked for originals delivers frames at any rung.
    OriginalsForgotten,
    /// An edge is not told that a camera's source is lost.
    SourceUntold,
    /// A session continues with a chain that its application cannot decode any further.
    ChainLossForgotten,
    /// A stream gets every camera of its pattern, whatever is granted.
    GrantsForgotten,
    /// A running stream is not ended when its right is taken away.
    LostRightForgotten,
    /// An edge keeps the rights with which it was created.
    RightsNotReadAgain,
    /// The link of a connected camera that is revoked is not closed.
    RevokedLinkKept,
    /// The stream of an application that is revoked while it reads is not ended.
    RevokedStreamKept,
    /// An edge replaces its deny list by an older one.
    OlderListTaken,
    /// An edge does not check the signature of a deny list.
    SignatureIgnored,
    /// An edge forgets its deny list when it starts.
    ListForgotten,
    /// A camera does not hand on the deny list that an edge gave it.
    ListNotHandedOn,
    /// An edge refuses a revoked member by its name, even with a new certificate.
    NewcomerRefused,
    /// An edge takes every frame of a chain to refer to the chain's first frame.
    ParentMisnamed,
    /// Every twentieth still has the wrong bytes.
    StillMixedUp,
    /// Every twentieth request for a still is never answered.
    StillForgotten,
    /// Three in twenty frames of a source's own video are not sent, although the camera believes that they were.
    NeededNotSent,
    /// Every twentieth frame that was encoded from a source's own video is replaced by the original, in the middle of its chain.
    BackAmidChain,
    /// A camera is not told that its edge requests a keyframe.
    RefreshIgnored,
    /// Every third data record is degraded with another knob value than its rung names.
    KnobMisnamed,
    /// If a degrading function fails, the record is sent as published, under the name of the rung.
    KnobFailureHidden,
    /// A group is not told that a member's connection was lost.
    MissedMemberKept,
    /// A group treats a returning member as holding no records.
    HeldForgotten,
    /// Every tenth record is given to two members.
    RecordGivenTwice,
    /// An edge that starts does not read the places of its groups.
    PlaceNotRead,
    /// An edge that starts reads only half of the places of its groups.
    PlaceHalfRead,
    /// A group does not keep the order of its cameras.
    OrderForgotten,
    /// A group that asked for the newest records is given every record.
    EveryForNewest,
    /// A group that waits for a fresh record waits until that comes, however long it takes.
    WaitWithoutEnd,
    /// Every tenth acknowledgement is answered but not processed.
    DoneForgotten,
    /// A member can settle the records of other members.
    OthersBelieved,
    /// A record may be given up to 100 times.
    TriesUncounted,
    /// Every third record that is to be given again is not looked up.
    AgainForgotten,
    /// A record that is given again has the bytes of another record.
    AgainMixedUp,
    /// Every tenth record of a derived stream names a wrong frame as its origin.
    OriginMixedUp,
    /// A publisher continues after its right was taken away.
    PublishRightKept,
    /// An edge that starts does not know how often derived streams began.
    StreamEpochForgotten,
    /// An edge that starts treats the derived streams on its disk as cameras.
    StreamTakenForCamera,
    /// Any application may publish a derived stream that another one publishes.
    StreamShared,
    /// One record of a derived stream in ten is accepted and thrown away.
    AcceptedNotKept,
    /// An edge forgets to count one answer that was replaced by a newer one.
    ReplacedAnswerUncounted,
    /// Every tenth answer that a publisher takes is the one before.
    OlderAnswerGiven,
    /// An edge goes on sending an answer that its broker has cancelled.
    AnswerResetIgnored,
    /// Every twentieth answer arrives with half of its bytes.
    AnswerMixedUp,
    /// A publisher is not told of answers that it did not read.
    UnreadAnswerForgotten,
}
