/* The few calls of libx264 that Mez makes, as functions of numbers and pointers: how x264's structures lie in memory differs from
 * version to version, and only the header that comes with the library knows. */

#include <stdint.h>
#include <stdlib.h>

#include <x264.h>

#if X264_BUILD < 155
#error "libx264 of build 155 or later is needed"
#endif

struct mez_x264 {
    x264_t *encoder;
    int width;
    /* What came out last. */
    x264_picture_t coded;
};

/* An encoder that keeps so many pictures to predict from; NULL if there is none to be had. */
struct mez_x264 *mez_x264_open(int width, int height, int pictures)
{
    x264_param_t p;
    /* Without look-ahead, B-pictures, threads of slices and rate control by lines. */
    if (x264_param_default_preset(&p, "veryfast", "zerolatency") < 0)
        return NULL;
    p.i_log_level = X264_LOG_NONE;
    p.i_bitdepth = 8;
    p.i_csp = X264_CSP_I420;
    p.i_width = width;
    p.i_height = height;
    /* One slice of one thread: frames have one, and the codec has a thread of its own already. */
    p.i_threads = 1;
    p.b_sliced_threads = 0;
    p.b_annexb = 1;
    p.b_repeat_headers = 1;
    /* Whoever calls says of every picture whether it is independent. */
    p.i_keyint_max = X264_KEYINT_MAX_INFINITE;
    p.i_scenecut_threshold = 0;
    p.i_bframe = 0;
    /* Each picture is predicted from one other, the newest that was not forgotten. */
    p.i_frame_reference = 1;
    p.i_dpb_size = pictures;
    p.analyse.i_weighted_pred = X264_WEIGHTP_NONE;
    /* Detectors have no eyes to please. */
    p.analyse.b_psy = 0;
    /* The quantiser comes with each picture, is that of all of it, and may be any: x264 confines it to what follows from the
     * constant and the two factors, here 0 to 51. */
    p.rc.i_rc_method = X264_RC_CQP;
    p.rc.i_qp_constant = 12;
    p.rc.f_ip_factor = 0.01f;
    p.rc.f_pb_factor = 0.01f;
    p.rc.i_aq_mode = X264_AQ_NONE;
    p.rc.b_mb_tree = 0;
    /* Headers are rewritten, which moves the data behind them by some bits, and arithmetic codes do not bear that; also, openh264
     * as a decoder holds back pictures of higher profiles until the next has come. */
    if (x264_param_apply_profile(&p, "baseline") < 0)
        return NULL;
    struct mez_x264 *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->width = width;
    self->encoder = x264_encoder_open(&p);
    if (!self->encoder) {
        free(self);
        return NULL;
    }
    return self;
}

/* Codes a picture of this number, which grows from picture to picture. Gives the number of bytes at *stream, which stay until the
 * next call; below 0 if x264 failed. The planes are only read. */
int mez_x264_encode(struct mez_x264 *self, const uint8_t *const planes[3], int64_t number, int independent, int quantiser,
                    const uint8_t **stream)
{
    x264_picture_t picture;
    x264_picture_init(&picture);
    picture.i_type = independent ? X264_TYPE_IDR : X264_TYPE_P;
    picture.i_qpplus1 = quantiser + 1;
    picture.i_pts = number;
    picture.img.i_csp = X264_CSP_I420;
    picture.img.i_plane = 3;
    for (int at = 0; at < 3; at++) {
        picture.img.plane[at] = (uint8_t *)planes[at];
        picture.img.i_stride[at] = at == 0 ? self->width : self->width / 2;
    }
    x264_nal_t *units = NULL;
    int count = 0;
    int bytes = x264_encoder_encode(self->encoder, &units, &count, &picture, &self->coded);
    /* The units lie one behind the other. */
    *stream = bytes > 0 && count > 0 ? units[0].p_payload : NULL;
    return bytes > 0 && count <= 0 ? -1 : bytes;
}

/* The next picture is predicted from none of this number or a higher one. */
int mez_x264_forget(struct mez_x264 *self, int64_t from)
{
    return x264_encoder_invalidate_reference(self->encoder, from);
}

/* The picture coded last as a decoder shows it: luma, then both differences of colour, sample by sample in turns. */
void mez_x264_shown(const struct mez_x264 *self, const uint8_t *planes[2], int strides[2])
{
    for (int at = 0; at < 2; at++) {
        planes[at] = self->coded.img.plane[at];
        strides[at] = self->coded.img.i_stride[at];
    }
}

void mez_x264_close(struct mez_x264 *self)
{
    x264_encoder_close(self->encoder);
    free(self);
}
