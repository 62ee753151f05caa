// SPDX-License-Identifier: MIT
/* Non-temporal copies where the CPU has them, else ordinary ones. */
#include "nt_copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

void pl_nt_copy(void *dst, const void *src, size_t bytes)
{
	char *d = dst;
	const char *s = src;
	size_t head = -(uintptr_t)d & 63;

	if (head > bytes)
		head = bytes;
	memcpy(d, s, head);
	d += head;
	s += head;
	bytes -= head;
	for (; bytes >= 64; bytes -= 64, d += 64, s += 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)s);
		__m128i b = _mm_loadu_si128((const __m128i *)s + 1);
		__m128i c = _mm_loadu_si128((const __m128i *)s + 2);
		__m128i e = _mm_loadu_si128((const __m128i *)s + 3);

		_mm_stream_si128((__m128i *)d, a);
		_mm_stream_si128((__m128i *)d + 1, b);
		_mm_stream_si128((__m128i *)d + 2, c);
		_mm_stream_si128((__m128i *)d + 3, e);
	}
	memcpy(d, s, bytes);
}

void pl_nt_fence(void)
{
	_mm_sfence();
}

#else

void pl_nt_copy(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

void pl_nt_fence(void)
{
}

#endif
