//! A safe interface to openh264, without further logic.
#![allow(unsafe_code, reason = "the codec is C++; every call says why it is sound")]

use std::ptr;

use openh264_sys2 as sys;
use openh264_sys2::source::APILoader;

use super::H264Error;
use super::foreign::ForeignOptions;
use crate::image::Yuv420View;
use crate::yuv::Planes;

/// Maximum number of pictures that the encoder may predict from: the last one, two long-term references,
/// and one more, so that the stream's parameters allow as many pictures as the decoder has slots.
const REFERENCES: i32 = super::slice::SLOTS as i32;

fn check(call: &'static str, status: i64) -> Result<(), H264Error> {
    if status == 0 { Ok(()) } else { Err(H264Error::Codec { call, status }) }
}

/// An encoder of pictures of one size.
pub(super) struct NativeEncoder {
    raw: *mut sys::ISVCEncoder,
    parameters: sys::SEncParamExt,
    timestamp_ms: i64,
}

// SAFETY: the library keeps no thread-local state, and starts no threads, because it is configured
// for one. An encoder may be used from any thread, one at a time, which `&mut self` ensures.
unsafe impl Send for NativeEncoder {}

impl NativeEncoder {
    pub(super) fn new(width: u32, height: u32, quantiser: u8) -> Result<Self, H264Error> {
        Self::start(|defaults| parameters(defaults, width, height, quantiser))
    }

    /// An encoder that works like a camera's.
    pub(super) fn of_a_camera(options: &ForeignOptions) -> Result<Self, H264Error> {
        Self::start(|defaults| {
            let mut p = parameters(defaults, options.width, options.height, options.quantiser);
            p.iTemporalLayerNum = options.temporal_layers as i32;
            p.uiIntraPeriod = options.key_frame_interval;
            (p.bEnableLongTermReference, p.iLTRRefNum) = (false, 0);
            if options.slices > 1 {
                p.sSpatialLayers[0].sSliceArgument.uiSliceMode = sys::SM_FIXEDSLCNUM_SLICE;
                p.sSpatialLayers[0].sSliceArgument.uiSliceNum = options.slices;
            }
            p
        })
    }

    fn start(parameters: impl FnOnce(sys::SEncParamExt) -> sys::SEncParamExt) -> Result<Self, H264Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: the function writes the pointer to `raw`.
        check("WelsCreateSVCEncoder", unsafe { APILoader::WelsCreateSVCEncoder(&mut raw) }.into())?;
        let mut encoder = Self { raw, parameters: sys::SEncParamExt::default(), timestamp_ms: 0 };
        encoder.set(sys::ENCODER_OPTION_TRACE_LEVEL, &mut { sys::WELS_LOG_QUIET })?;
        // SAFETY: the function fills the given parameters.
        let status = unsafe { encoder.table().GetDefaultParams.expect(TABLE)(raw, &mut encoder.parameters) };
        check("GetDefaultParams", status.into())?;
        encoder.parameters = parameters(encoder.parameters);
        // SAFETY: the parameters are initialised, and read only during the call.
        let status = unsafe { encoder.table().InitializeExt.expect(TABLE)(raw, &encoder.parameters) };
        check("InitializeExt", status.into())?;
        encoder.set(sys::ENCODER_LTR_MARKING_PERIOD, &mut 0u32)?;
        Ok(encoder)
    }

    pub(super) fn set_quantiser(&mut self, quantiser: u8) -> Result<(), H264Error> {
        if self.parameters.sSpatialLayers[0].iDLayerQp == i32::from(quantiser) {
            return Ok(());
        }
        self.parameters.sSpatialLayers[0].iDLayerQp = quantiser.into();
        let mut parameters = self.parameters;
        self.set(sys::ENCODER_OPTION_SVC_ENCODE_PARAM_EXT, &mut parameters)?;
        self.set(sys::ENCODER_LTR_MARKING_PERIOD, &mut 0u32)
    }

    /// Makes the next picture independent.
    pub(super) fn force_independent(&mut self) -> Result<(), H264Error> {
        // SAFETY: the encoder is initialised.
        let status = unsafe { self.table().ForceIntraFrame.expect(TABLE)(self.raw, true) };
        check("ForceIntraFrame", status.into())
    }

    /// Reports whether the long-term reference with this `frame_num` arrived. Takes effect at the end of the next picture.
    pub(super) fn feedback(&mut self, idr: u32, frame_num: u32, arrived: bool) -> Result<(), H264Error> {
        let kind = if arrived { sys::LTR_MARKING_SUCCESS } else { sys::LTR_MARKING_FAILED };
        self.set(
            sys::ENCODER_LTR_MARKING_FEEDBACK,
            &mut sys::SLTRMarkingFeedback {
                uiFeedbackType: kind as u32,
                uiIDRPicId: idr,
                iLTRFrameNum: frame_num as i32,
                iLayerId: 0,
            },
        )
    }

    /// Makes the encoder predict the next picture from the newest long-term reference that arrived.
    pub(super) fn recover(&mut self, idr: u32) -> Result<(), H264Error> {
        self.set(
            sys::ENCODER_LTR_RECOVERY_REQUEST,
            &mut sys::SLTRRecoverRequest {
                uiFeedbackType: sys::LTR_RECOVERY_REQUEST as u32,
                uiIDRPicId: idr,
                // With −1 here, the library ignores both frame numbers. Otherwise it would delete references by them, and none should be deleted.
                iLastCorrectFrameNum: 0,
                iCurrentFrameNum: -1,
                iLayerId: 0,
            },
        )
    }

    /// Encodes a picture into `out` (annex B, overwritten). False if there was no picture to predict it from.
    pub(super) fn encode(&mut self, image: &Yuv420View<'_>, out: &mut Vec<u8>) -> Result<bool, H264Error> {
        let (width, height) = (image.width() as i32, image.height() as i32);
        assert_eq!(
            (width, height),
            (self.parameters.iPicWidth, self.parameters.iPicHeight),
            "an encoder is made for pictures of one size"
        );
        self.timestamp_ms += 33;
        let source = sys::SSourcePicture {
            iColorFormat: sys::videoFormatI420,
            iStride: [width, width / 2, width / 2, 0],
            pData: [
                image.luma().as_ptr().cast_mut(),
                image.chroma_blue().as_ptr().cast_mut(),
                image.chroma_red().as_ptr().cast_mut(),
                ptr::null_mut(),
            ],
            iPicWidth: width,
            iPicHeight: height,
            uiTimeStamp: self.timestamp_ms,
            ..Default::default()
        };
        let mut info = sys::SFrameBSInfo::default();
        // SAFETY: the planes have the sizes that the picture states (even sides, as
        // given to `new`), are only read, and outlive the call; `info` is written.
        let status = unsafe { self.table().EncodeFrame.expect(TABLE)(self.raw, &source, &mut info) };
        const NOTHING_TO_REFER_TO: i32 = 2;
        if status != 0 && status != NOTHING_TO_REFER_TO {
            return Err(H264Error::Codec { call: "EncodeFrame", status: status.into() });
        }
        out.clear();
        for layer in info.sLayerInfo.iter().take(info.iLayerNum.max(0) as usize) {
            if layer.iNalCount <= 0 || layer.pNalLengthInByte.is_null() || layer.pBsBuf.is_null() {
                continue;
            }
            // SAFETY: the library returns as many lengths as there are units. The units lie
            // one after another in its buffer, which does not change until the next call.
            unsafe {
                let lengths = std::slice::from_raw_parts(layer.pNalLengthInByte, layer.iNalCount as usize);
                let bytes: usize = lengths.iter().map(|&length| length.max(0) as usize).sum();
                out.extend_from_slice(std::slice::from_raw_parts(layer.pBsBuf, bytes));
            }
        }
        Ok(status == 0)
    }

    fn set<T>(&mut self, option: sys::ENCODER_OPTION, value: &mut T) -> Result<(), H264Error> {
        // SAFETY: callers pass the type that the option takes (codec_api.h), which is only used during the call.
        let status =
            unsafe { self.table().SetOption.expect(TABLE)(self.raw, option, ptr::from_mut(value).cast()) };
        check("SetOption", status.into())
    }

    fn table(&self) -> &sys::ISVCEncoderVtbl {
        // SAFETY: an encoder points to its table of functions while it exists.
        unsafe { &**self.raw }
    }
}

impl Drop for NativeEncoder {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once, and not used afterwards.
        unsafe {
            self.table().Uninitialize.expect(TABLE)(self.raw);
            APILoader::WelsDestroySVCEncoder(self.raw);
        }
    }
}

const TABLE: &str = "the library fills its table of functions";

/// Parameters that measured best for one frame at a time: no rate control by the library, one thread, low
/// complexity (a higher one saves 2 % of the bytes), and only features whose results depend on the pictures alone.
fn parameters(defaults: sys::SEncParamExt, width: u32, height: u32, quantiser: u8) -> sys::SEncParamExt {
    let mut p = defaults;
    p.iUsageType = sys::CAMERA_VIDEO_REAL_TIME;
    (p.iPicWidth, p.iPicHeight) = (width as i32, height as i32);
    p.iRCMode = sys::RC_OFF_MODE;
    p.fMaxFrameRate = 30.0;
    p.iTemporalLayerNum = 1;
    p.iSpatialLayerNum = 1;
    p.iComplexityMode = sys::LOW_COMPLEXITY;
    p.uiIntraPeriod = 0;
    p.iNumRefFrame = REFERENCES;
    p.eSpsPpsIdStrategy = sys::CONSTANT_ID;
    p.iEntropyCodingModeFlag = 0;
    p.bEnableLongTermReference = true;
    p.iLTRRefNum = 2;
    p.iMultipleThreadIdc = 1;
    p.bEnableFrameSkip = false;
    p.bEnableSceneChangeDetect = false;
    p.bEnableAdaptiveQuant = false;
    p.bEnableDenoise = false;
    // Background detection made results irreproducible.
    p.bEnableBackgroundDetection = false;
    (p.iMinQp, p.iMaxQp) = (0, 51);
    let layer = &mut p.sSpatialLayers[0];
    (layer.iVideoWidth, layer.iVideoHeight) = (width as i32, height as i32);
    layer.fFrameRate = 30.0;
    layer.iSpatialBitrate = 5_000_000;
    layer.iDLayerQp = quantiser.into();
    layer.uiProfileIdc = sys::PRO_BASELINE;
    layer.sSliceArgument.uiSliceMode = sys::SM_SINGLE_SLICE;
    // Full range, BT.601, as in JPEG.
    layer.bVideoSignalTypePresent = true;
    layer.uiVideoFormat = sys::VF_UNDEF as u8;
    layer.bFullRange = true;
    layer.bColorDescriptionPresent = true;
    layer.uiColorPrimaries = sys::CP_BT709 as u8;
    layer.uiTransferCharacteristics = sys::TRC_IEC61966_2_1 as u8;
    layer.uiColorMatrix = sys::CM_SMPTE170M as u8;
    p
}

/// A decoder.
pub(super) struct NativeDecoder {
    raw: *mut sys::ISVCDecoder,
}

// SAFETY: as for the encoder.
unsafe impl Send for NativeDecoder {}

impl NativeDecoder {
    pub(super) fn new() -> Result<Self, H264Error> {
        let mut raw = ptr::null_mut();
        // SAFETY: the function writes the pointer to `raw`.
        check("WelsCreateDecoder", unsafe { APILoader::WelsCreateDecoder(&mut raw) })?;
        let decoder = Self { raw };
        let mut quiet = sys::WELS_LOG_QUIET;
        // SAFETY: the option takes an int, which is only read during the call.
        unsafe {
            decoder.table().SetOption.expect(TABLE)(
                raw,
                sys::DECODER_OPTION_TRACE_LEVEL,
                ptr::from_mut(&mut quiet).cast(),
            )
        };
        let parameters = sys::SDecodingParam {
            // Lost pictures are requested again, never concealed.
            eEcActiveIdc: sys::ERROR_CON_DISABLE,
            sVideoProperty: sys::SVideoProperty {
                size: size_of::<sys::SVideoProperty>() as u32,
                eVideoBsType: sys::VIDEO_BITSTREAM_AVC,
            },
            ..Default::default()
        };
        // SAFETY: the parameters are initialised, and read only during the call.
        check("Initialize", unsafe { decoder.table().Initialize.expect(TABLE)(raw, &parameters) })?;
        Ok(decoder)
    }

    /// Decodes one picture (annex B) and passes its planes to `show`, with its width and height.
    pub(super) fn decode(
        &mut self,
        stream: &[u8],
        show: impl FnOnce(&Planes<'_>, u32, u32),
    ) -> Result<(), H264Error> {
        let length = i32::try_from(stream.len())
            .map_err(|_| H264Error::Damaged { detail: "it has more bytes than the decoder can count" })?;
        let mut planes = [ptr::null_mut::<u8>(); 3];
        let mut info = sys::SBufferInfo::default();
        // SAFETY: the stream is only read and outlives the call; the pointers of the planes and `info` are written.
        let status = unsafe {
            self.table().DecodeFrameNoDelay.expect(TABLE)(
                self.raw,
                stream.as_ptr(),
                length,
                planes.as_mut_ptr(),
                &mut info,
            )
        };
        check("DecodeFrameNoDelay", status.into())?;
        if info.iBufferStatus != 1 || planes.iter().any(|plane| plane.is_null()) {
            return Err(H264Error::Damaged { detail: "the decoder returned no picture" });
        }
        // SAFETY: with the status 1, the library has filled this member of the union.
        let buffer = unsafe { info.UsrData.sSystemBuffer };
        let (width, height) = (buffer.iWidth as usize, buffer.iHeight as usize);
        let [luma_stride, chroma_stride] = buffer.iStride.map(|stride| stride as usize);
        if width == 0 || height == 0 || luma_stride < width || chroma_stride < width.div_ceil(2) {
            return Err(H264Error::Damaged { detail: "its picture has an impossible size" });
        }
        let plane = |at: usize, stride: usize, width: usize, height: usize| {
            // SAFETY: the library states the size and the stride of the planes, and does not change them until the next call.
            unsafe { std::slice::from_raw_parts(planes[at], stride * (height - 1) + width) }
        };
        let (half_width, half_height) = (width.div_ceil(2), height.div_ceil(2));
        let planes = Planes {
            luma: plane(0, luma_stride, width, height),
            luma_stride,
            blue: plane(1, chroma_stride, half_width, half_height),
            red: plane(2, chroma_stride, half_width, half_height),
            chroma_stride,
        };
        show(&planes, width as u32, height as u32);
        Ok(())
    }

    fn table(&self) -> &sys::ISVCDecoderVtbl {
        // SAFETY: a decoder points to its table of functions while it exists.
        unsafe { &**self.raw }
    }
}

impl Drop for NativeDecoder {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once, and not used afterwards.
        unsafe {
            self.table().Uninitialize.expect(TABLE)(self.raw);
            APILoader::WelsDestroyDecoder(self.raw);
        }
    }
}
