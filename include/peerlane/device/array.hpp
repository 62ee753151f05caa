/* SPDX-License-Identifier: MIT */
/*
 * array.h for C++: elements of a type, from some byte of the array on.
 *
 *	peerlane::array<double> column(&a, first_byte, nr);
 *	double x = column[i];
 *	column.set(i, 2 * x);
 *	if (column.err()) ...
 *
 * All lanes of the group call together, as in array.h; get() and set() take a condition for lanes that want
 * nothing. An element that cannot be had reads as T(), and err() tells the first error of this lane.
 */
#ifndef PEERLANE_DEVICE_ARRAY_HPP
#define PEERLANE_DEVICE_ARRAY_HPP

#include <peerlane/device/array.h>

#ifdef __CUDACC__
#define PLD_METHOD_ __device__ __forceinline__
#else
#define PLD_METHOD_ inline
#endif

namespace peerlane
{

template <class T> class array
{
	static_assert(sizeof(T) <= 64 && (sizeof(T) & (sizeof(T) - 1)) == 0,
		      "elements are of 1, 2, 4, ... 64 bytes");

    public:
	/* @nr elements of what @a has open, from byte @first on, a multiple of their size. */
	PLD_METHOD_ array(struct pld_array *a, uint64_t first, uint64_t nr)
		: a_(a), first_(first / sizeof(T)), nr_(nr), err_(0)
	{
	}

	PLD_METHOD_ uint64_t size() const
	{
		return nr_;
	}

	PLD_METHOD_ T get(uint64_t i, bool want = true)
	{
		T value = T();

		note(pld_array_read(a_, want && i < nr_, first_ + i, &value, sizeof(T)),
		     want && i >= nr_);
		return value;
	}

	PLD_METHOD_ T operator[](uint64_t i)
	{
		return get(i);
	}

	PLD_METHOD_ void set(uint64_t i, const T &value, bool want = true)
	{
		note(pld_array_write(a_, want && i < nr_, first_ + i, &value, sizeof(T)),
		     want && i >= nr_);
	}

	PLD_METHOD_ void prefetch(uint64_t i, bool want = true)
	{
		pld_array_prefetch(a_, want && i < nr_, first_ + i, sizeof(T));
	}

	/* The first error, or 0. */
	PLD_METHOD_ int err() const
	{
		return err_;
	}

    private:
	PLD_METHOD_ void note(int err, bool outside)
	{
		if (!err_)
			err_ = outside ? -ERANGE : err;
	}

	struct pld_array *a_;
	uint64_t first_, nr_;
	int err_;
};

} // namespace peerlane

#undef PLD_METHOD_

#endif
