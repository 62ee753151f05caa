/* SPDX-License-Identifier: MIT */
/* port.h for CUDA, sm_70 and newer. Only port.h includes it. */
#ifndef PEERLANE_DEVICE_PORT_CUDA_H
#define PEERLANE_DEVICE_PORT_CUDA_H

#define PLD_FN static __device__ __forceinline__
#define PLD_SLOW static __device__ __noinline__
#define PLD_WARP 32u

PLD_FN uint32_t pld_lane(void)
{
	uint32_t lane;

	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane;
}

/* All memory that is named here is global: accesses that say so are shorter. */
#define PLD_AT_(p) "l"(__cvta_generic_to_global(p))

#define PLD_LOAD_(name, type, op, letter)                                                          \
	PLD_FN type pld_load_##name(const type *p)                                                 \
	{                                                                                          \
		type v;                                                                            \
                                                                                                   \
		asm volatile("ld." op " %0, [%1];" : "=" letter(v) : PLD_AT_(p) : "memory");       \
		return v;                                                                          \
	}

#define PLD_STORE_(name, type, op, letter)                                                         \
	PLD_FN void pld_store_##name(type *p, type v)                                              \
	{                                                                                          \
		asm volatile("st." op " [%0], %1;" ::PLD_AT_(p), letter(v) : "memory");            \
	}

PLD_LOAD_(relaxed_dev32, uint32_t, "relaxed.gpu.global.u32", "r")
PLD_LOAD_(relaxed_dev64, uint64_t, "relaxed.gpu.global.u64", "l")
PLD_LOAD_(relaxed_sys32, uint32_t, "relaxed.sys.global.u32", "r")
PLD_LOAD_(acquire_dev64, uint64_t, "acquire.gpu.global.u64", "l")
PLD_LOAD_(acquire_sys32, uint32_t, "acquire.sys.global.u32", "r")
PLD_STORE_(relaxed_dev32, uint32_t, "relaxed.gpu.global.u32", "r")
PLD_STORE_(relaxed_dev64, uint64_t, "relaxed.gpu.global.u64", "l")
PLD_STORE_(relaxed_sys32, uint32_t, "relaxed.sys.global.u32", "r")
PLD_STORE_(release_dev32, uint32_t, "release.gpu.global.u32", "r")
PLD_STORE_(release_dev64, uint64_t, "release.gpu.global.u64", "l")

#define PLD_ATOM_(name, type, op, letter)                                                          \
	PLD_FN type pld_##name(type *p, type v)                                                    \
	{                                                                                          \
		type was;                                                                          \
                                                                                                   \
		asm volatile("atom.acq_rel.gpu.global." op " %0, [%1], %2;"                        \
			     : "=" letter(was)                                                     \
			     : PLD_AT_(p), letter(v)                                               \
			     : "memory");                                                          \
		return was;                                                                        \
	}

PLD_ATOM_(exchange_dev32, uint32_t, "exch.b32", "r")
PLD_ATOM_(add_dev32, uint32_t, "add.u32", "r")

#undef PLD_LOAD_
#undef PLD_STORE_
#undef PLD_ATOM_

#define PLD_CAS_(name, order)                                                                      \
	PLD_FN uint64_t pld_##name(uint64_t *p, uint64_t expected, uint64_t v)                     \
	{                                                                                          \
		uint64_t was;                                                                      \
                                                                                                   \
		asm volatile("atom." order ".gpu.global.cas.b64 %0, [%1], %2, %3;"                 \
			     : "=l"(was)                                                           \
			     : PLD_AT_(p), "l"(expected), "l"(v)                                   \
			     : "memory");                                                          \
		return was;                                                                        \
	}

PLD_CAS_(cas_dev64, "acquire")
PLD_CAS_(cas_release_dev64, "release")
PLD_CAS_(cas_relaxed_dev64, "relaxed")

#undef PLD_CAS_

PLD_FN uint32_t pld_or_dev32(uint32_t *p, uint32_t v)
{
	uint32_t was;

	asm volatile("atom.acquire.gpu.global.or.b32 %0, [%1], %2;"
		     : "=r"(was)
		     : PLD_AT_(p), "r"(v)
		     : "memory");
	return was;
}

PLD_FN uint32_t pld_lock_dev32(uint32_t *p)
{
	uint32_t was;

	asm volatile("atom.acquire.gpu.global.exch.b32 %0, [%1], 1;"
		     : "=r"(was)
		     : PLD_AT_(p)
		     : "memory");
	return was;
}

PLD_FN uint64_t pld_take_dev64(uint64_t *p, uint64_t v)
{
	uint64_t was;

	asm volatile("atom.acquire.gpu.global.add.u64 %0, [%1], %2;"
		     : "=l"(was)
		     : PLD_AT_(p), "l"(v)
		     : "memory");
	return was;
}

PLD_FN void pld_give_dev64(uint64_t *p, uint64_t v)
{
	asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::PLD_AT_(p), "l"(v) : "memory");
}

PLD_FN void pld_count_dev64(uint64_t *p, uint64_t v)
{
	asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::PLD_AT_(p), "l"(v) : "memory");
}

PLD_FN void pld_store16(void *p, struct pld_vec v)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::PLD_AT_(p), "r"(v.w[0]),
		     "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
		     : "memory");
}

PLD_FN struct pld_vec pld_load16(const void *p)
{
	struct pld_vec v;

	asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
		     : PLD_AT_(p)
		     : "memory");
	return v;
}

#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 4)
/* Sixteen aligned bytes are of one line, which comes over the bus as it was at one time. */
PLD_FN int pld_load_fresh_sys(const void *p, uint32_t bit, uint32_t was, struct pld_vec *v)
{
	uint64_t low, high;

	asm volatile("{\n\t.reg .b128 v;\n\tld.acquire.sys.global.b128 v, [%2];\n\tmov.b128 {%0, "
		     "%1}, v;\n\t}"
		     : "=l"(low), "=l"(high)
		     : PLD_AT_(p)
		     : "memory");
	v->w[0] = (uint32_t)low;
	v->w[1] = (uint32_t)(low >> 32);
	v->w[2] = (uint32_t)high;
	v->w[3] = (uint32_t)(high >> 32);
	return (v->w[3] >> 16 & bit) != was;
}
#else
PLD_FN int pld_load_fresh_sys(const void *p, uint32_t bit, uint32_t was, struct pld_vec *v)
{
	const uint32_t last = pld_load_acquire_sys32((const uint32_t *)p + 3);

	if ((last >> 16 & bit) == was)
		return 0;
	*v = pld_load16(p);
	return 1;
}
#endif

/* The store is of the kind that the registers of a device need, where the compiler has it. */
PLD_FN void pld_ring(uint32_t *p, uint32_t v)
{
	asm volatile("fence.acq_rel.sys;" ::: "memory");
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 3)
	asm volatile("st.mmio.relaxed.sys.global.u32 [%0], %1;" ::PLD_AT_(p), "r"(v) : "memory");
#else
	asm volatile("st.volatile.global.u32 [%0], %1;" ::PLD_AT_(p), "r"(v) : "memory");
#endif
}

PLD_FN void pld_sync(uint32_t lanes)
{
	__syncwarp(lanes);
}

PLD_FN uint32_t pld_ballot(uint32_t lanes, int bit)
{
	return __ballot_sync(lanes, bit);
}

PLD_FN uint32_t pld_shfl32(uint32_t lanes, uint32_t v, uint32_t from)
{
	return __shfl_sync(lanes, v, (int)from);
}

PLD_FN uint64_t pld_shfl64(uint32_t lanes, uint64_t v, uint32_t from)
{
	return __shfl_sync(lanes, (unsigned long long)v, (int)from);
}

PLD_FN uint32_t pld_match64(uint32_t lanes, uint64_t v)
{
	return __match_any_sync(lanes, (unsigned long long)v);
}

PLD_FN uint64_t pld_or64(uint32_t lanes, uint64_t v)
{
#if __CUDA_ARCH__ >= 800
	return (uint64_t)__reduce_or_sync(lanes, (unsigned int)(v >> 32)) << 32 |
	       __reduce_or_sync(lanes, (unsigned int)v);
#else
	uint64_t all = 0;

	for (uint32_t left = lanes; left; left &= left - 1)
		all |= __shfl_sync(lanes, (unsigned long long)v, __ffs((int)left) - 1);
	return all;
#endif
}

PLD_FN uint64_t pld_clock_ns(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

PLD_FN void pld_nap(uint32_t ns)
{
	__nanosleep(ns);
}

#endif
