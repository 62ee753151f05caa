// SPDX-License-Identifier: MIT
/* Stream capture of the fake libcuda: nothing is captured; what other calls may do meanwhile. */
#include "fake.h"

static __thread int thread_mode;

int fake_stream_usable(const struct fake_stream *stream)
{
	struct fake_stream *captured;

	if (stream->implicit != CU_STREAM_LEGACY)
		return CU_OK;
	captured = fake_stream_captured(stream->ctx);
	if (!captured)
		return CU_OK;
	captured->capture = FAKE_CAPTURE_INVALID;
	return CU_CAPTURE_IMPLICIT;
}

int cuStreamBeginCapture_v2(void *stream, int mode)
{
	struct fake_context *ctx;
	struct fake_stream *s;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	s = fake_stream_find(stream, ctx);
	if (!s || s->implicit == CU_STREAM_LEGACY || s->capture || mode < 0 || mode > 2)
		return fake_end(CU_INVALID_VALUE);
	s->capture = FAKE_CAPTURE_ACTIVE;
	return fake_end(CU_OK);
}

int cuStreamEndCapture(void *stream, void **graph)
{
	struct fake_context *ctx;
	struct fake_stream *s;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	s = fake_stream_find(stream, ctx);
	if (!s || !s->capture)
		return fake_end(CU_INVALID_VALUE);
	result = s->capture == FAKE_CAPTURE_INVALID ? CU_CAPTURE_INVALIDATED : CU_OK;
	s->capture = FAKE_CAPTURE_NONE;
	*graph = NULL;
	return fake_end(result);
}

/* For the default stream an error tells that a blocking one is captured, and does no harm to that. */
int cuStreamIsCapturing(void *stream, int *status)
{
	struct fake_context *ctx;
	struct fake_stream *s;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	s = fake_stream_find(stream, ctx);
	if (!s)
		return fake_end(CU_INVALID_HANDLE);
	if (s->implicit == CU_STREAM_LEGACY && fake_stream_captured(ctx))
		return fake_end(CU_CAPTURE_IMPLICIT);
	*status = s->capture;
	return fake_end(CU_OK);
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = thread_mode, result = fake_begin(__func__, NULL);

	if (result)
		return result;
	if (*mode < 0 || *mode > 2)
		return fake_end(CU_INVALID_VALUE);
	thread_mode = *mode;
	*mode = before;
	return fake_end(CU_OK);
}
