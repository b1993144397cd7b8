//! Lists the bugs that a test can plant in a world, to show that the rules notice each.

/// Something that a world does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A byte of every seventh frame's payload changes on the way.
    AlteredBytes,
    /// Headers lose what they say of skipped frames.
    LostSkipRanges,
    /// An application is given the frame before once more.
    FrameAgain,
    /// The camera is never told that nobody wants its frames any more.
    DemandKept,
    /// A frame is given to the link a second time.
    SentTwice,
    /// Readings of the edge's clock are 30 ms wrong.
    ClockWrong,
    /// A camera connects only once.
    NoRedial,
    /// One frame more is stated as skipped than were.
    Miscounted,
    /// A frame counts as sent while its last bytes have not left.
    SentTooSoon,
    /// Once in a while the camera broker is not told of a frame until the next one.
    FramesKeptBack,
    /// Links queue a hundred times as much as they should.
    LongQueue,
    /// A reply comes back altered.
    ReplyAltered,
    /// A camera's timer comes and nobody serves it.
    TimerIgnored,
    /// A camera's log gets four times its budget.
    LogTooLarge,
    /// Every fifth frame of the past is passed over.
    PastWithHoles,
    /// A reading of the past is given bytes of another frame.
    PastMixedUp,
    /// A frame of the past counts as sent as soon as it is begun, so that the link never rests from the past.
    PastHurries,
    /// A camera that is not there is taken for one that holds nothing.
    AbsenceTakenForNothing,
    /// Applications are not told of stretches that nobody holds.
    HolesUntold,
    /// Every third question for the past is answered with nothing, and nobody was asked.
    PastNotAsked,
    /// A camera's codec is not told which frames were lost.
    LossForgotten,
    /// A camera's link goes on with a frame that the broker has cancelled.
    CancelIgnored,
    /// A camera learns a tenth of a second late that the last byte of a frame has left.
    LeftUntold,
    /// An edge's decoder shows something of every frame, whether or not it can be decoded.
    UndecodableShown,
    /// A shared medium forgets once in a while to say that a piece is through.
    PieceForgotten,
    /// Cameras never learn of a cap.
    ShareUntold,
    /// An edge believes every epoch that a camera claims.
    EpochUnbounded,
    /// A reset closes the connection, and the edge still knows the epoch.
    ResetKeepsEpoch,
    /// An edge holds a frame for every application that stands still, whatever its log has let go of.
    HeldWithoutShare,
    /// Applications are told that their contract is kept, whatever comes, and nothing else.
    AllIsWell,
    /// A door that is full stays shut for whoever comes, instead of closing somebody who waits.
    NobodyMakesRoom,
    /// All connections at a door count as coming from one address.
    AddressesMixedUp,
    /// Connections that have to make room are not closed.
    DroppedKept,
    /// A session is not told that its application demands something else; the broker is.
    UpdateForgotten,
    /// What is left to account for at the end of a session is not told.
    RestForgotten,
    /// A session is not told what its application measured.
    AccuracyForgotten,
    /// A session is not told when its application took frames.
    TakenForgotten,
    /// Edges are told all the time that bytes of frames come, whether or not a link carries anything.
    SilenceHidden,
    /// A session that was asked for originals gives frames at whatever rung they come.
    OriginalsForgotten,
    /// An edge is not told that a camera's source is lost.
    SourceUntold,
    /// A session goes on with a chain that its application cannot decode any further.
    ChainLossForgotten,
    /// A stream gets every camera of its pattern, whatever was granted.
    GrantsForgotten,
    /// A stream that runs is not ended when its right is taken away.
    LostRightForgotten,
    /// An edge goes on with the rights with which it was made.
    RightsNotReadAgain,
    /// The link of a camera that is revoked while it is connected is not ended.
    RevokedLinkKept,
    /// The stream of an application that is revoked while it reads is not ended.
    RevokedStreamKept,
    /// An edge takes in an older deny list in place of the one that it holds.
    OlderListTaken,
    /// An edge does not look who has signed a deny list.
    SignatureIgnored,
    /// An edge that starts knows nothing of the deny list that it held.
    ListForgotten,
    /// A camera keeps the deny list that an edge gave it for itself.
    ListNotHandedOn,
    /// An edge refuses a member by its name, whatever certificate it shows.
    NewcomerRefused,
    /// An edge believes that every frame of a chain needs the first one alone.
    ParentMisnamed,
    /// Every twentieth still is of another frame.
    StillMixedUp,
    /// Every twentieth question for a still is never answered.
    StillForgotten,
    /// Three in twenty frames of a source's own video are not sent, and its camera believes that it was.
    NeededNotSent,
    /// In place of every twentieth frame that was made of a source's own video, the frame itself is sent, in the middle of its chain.
    BackAmidChain,
    /// A camera is not told that its edge wants a frame that stands alone.
    RefreshIgnored,
    /// Of every third data record a knob keeps more or less than the rung says that is named.
    KnobMisnamed,
    /// Where a function fails, the record goes as it was published under the name of the rung.
    KnobFailureHidden,
    /// A group is not told that a member's connection was lost.
    MissedMemberKept,
    /// A group believes that a member that is back holds nothing.
    HeldForgotten,
    /// Now and then a record goes to two members.
    RecordGivenTwice,
    /// An edge that starts does not read where its groups were.
    PlaceNotRead,
    /// An edge that starts reads half of where its groups were.
    PlaceHalfRead,
    /// A group forgets that cameras are to be kept in order.
    OrderForgotten,
    /// A group of the newest is given every record.
    EveryForNewest,
    /// Every tenth acknowledgement is answered and not taken in.
    DoneForgotten,
    /// A member settles what others were given.
    OthersBelieved,
    /// A record is given again without end.
    TriesUncounted,
    /// Nobody looks for every third record that is to be given again.
    AgainForgotten,
    /// A record that is given again comes with the bytes of another.
    AgainMixedUp,
    /// Every tenth record of a derived stream names another frame than it was made of.
    OriginMixedUp,
    /// Whoever publishes goes on when that right is taken away.
    PublishRightKept,
    /// An edge that starts does not know how often derived streams began.
    StreamEpochForgotten,
    /// An edge that starts takes the derived streams on its disk for cameras.
    StreamTakenForCamera,
    /// A derived stream is published by whoever comes, while somebody else publishes it.
    StreamShared,
    /// Every tenth record of a derived stream is accepted, and thrown away.
    AcceptedNotKept,
}
