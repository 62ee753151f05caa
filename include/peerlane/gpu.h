/* SPDX-License-Identifier: MIT */
/*
 * The GPU of a context, real or simulated, for programs that want to run on either: devices,
 * memory, streams and kernels. A program that uses CUDA itself needs none of this.
 */
#ifndef PEERLANE_GPU_H
#define PEERLANE_GPU_H

#include <peerlane/peerlane.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct peerlane_gpu_info - one GPU
 * @size: sizeof(struct peerlane_gpu_info), set by the caller
 * @name: product name
 * @pci: PCI address such as "0000:3b:00.0"; empty for a simulated GPU
 * @memory_bytes: memory of the device
 * @driver: driver version as text
 * @numa_node: node the GPU hangs on, -1 if unknown
 * @copy_lists: 1 if the driver takes the copies of several threads as one list, else 0
 */
struct peerlane_gpu_info {
	size_t size;
	char name[96];
	char pci[16];
	uint64_t memory_bytes;
	char driver[32];
	int numa_node;
	int copy_lists;
};

/**
 * peerlane_gpu_count() - number of GPUs of the back end
 * @ctx: context
 *
 * Return: number, 0 or more; -EREMOTEIO the driver failed.
 */
int peerlane_gpu_count(struct peerlane *ctx);

/**
 * peerlane_gpu_get_info() - describe a GPU
 * @ctx: context
 * @gpu: ordinal, from 0
 * @out: @size set by the caller, the rest filled
 *
 * Return: 0; -ENODEV no such GPU; -EINVAL.
 */
int peerlane_gpu_get_info(struct peerlane *ctx, int gpu, struct peerlane_gpu_info *out);

/**
 * peerlane_gpu_alloc() - allocate GPU memory
 * @ctx: context
 * @gpu: ordinal
 * @bytes: how much
 * @out: receives the address, aligned to 256 bytes or better; the CPU must not touch it
 *
 * Return: 0; -ENODEV; -EINVAL; -ENOMEM.
 */
int peerlane_gpu_alloc(struct peerlane *ctx, int gpu, size_t bytes, void **out);

/**
 * peerlane_gpu_free() - free memory of peerlane_gpu_alloc()
 * @ctx: context
 * @addr: address, or NULL
 *
 * Return: 0; -EINVAL not an allocation of this back end, or freed already.
 */
int peerlane_gpu_free(struct peerlane *ctx, void *addr);

/**
 * peerlane_gpu_copy() - copy between any two pieces of memory and wait for it
 * @ctx: context
 * @dst: destination, GPU or host
 * @src: source, GPU or host
 * @bytes: how much
 *
 * Return: 0; -EINVAL; -EFAULT; -EREMOTEIO.
 */
int peerlane_gpu_copy(struct peerlane *ctx, void *dst, const void *src, size_t bytes);

/**
 * peerlane_gpu_copy_limit() - measure how fast pinned host memory and GPU memory are copied
 * @ctx: context
 * @gpu: ordinal
 * @dir: PEERLANE_READ for host to GPU, PEERLANE_WRITE for GPU to host
 * @bytes_per_s: receives the rate
 *
 * Keeps large asynchronous copies queued for about 100 ms: the most any staged transfer in that
 * direction can reach. On the simulator it is the rate of memory copies.
 *
 * Context: any thread; blocks; other I/O at the same time lowers the result.
 *
 * Return: 0; -EINVAL; -ENODEV no such GPU; -ENOMEM; -EREMOTEIO the driver failed.
 */
int peerlane_gpu_copy_limit(struct peerlane *ctx, int gpu, enum peerlane_op dir,
			    double *bytes_per_s);

/**
 * peerlane_gpu_stream_create() - make a stream
 * @ctx: context
 * @gpu: ordinal
 * @out: receives the stream; on CUDA it is a CUstream
 *
 * Return: 0; -ENODEV; -ENOMEM; -EREMOTEIO.
 */
int peerlane_gpu_stream_create(struct peerlane *ctx, int gpu, void **out);

/**
 * peerlane_gpu_stream_destroy() - finish a stream's work and free it
 * @ctx: context
 * @stream: stream of peerlane_gpu_stream_create(), or NULL
 */
void peerlane_gpu_stream_destroy(struct peerlane *ctx, void *stream);

/**
 * peerlane_gpu_stream_sync() - wait until all work queued on a stream is done
 * @ctx: context
 * @stream: stream
 *
 * Return: 0; -EREMOTEIO.
 */
int peerlane_gpu_stream_sync(struct peerlane *ctx, void *stream);

/**
 * typedef peerlane_kernel_fn - what a kernel does, for the simulated GPU
 * @block: index of the block
 * @nr_blocks: number of blocks
 * @args: the argument pointers of the launch; addresses in them are translated with
 *        peerlane_sim_host()
 */
typedef void (*peerlane_kernel_fn)(unsigned int block, unsigned int nr_blocks, void **args);

/**
 * struct peerlane_kernel - one kernel for both back ends
 * @name: entry point in @ptx
 * @ptx: PTX text, zero-terminated
 * @host: the same computation as a C function
 */
struct peerlane_kernel {
	const char *name;
	const char *ptx;
	peerlane_kernel_fn host;
};

/**
 * peerlane_gpu_launch() - queue a kernel on a stream
 * @ctx: context
 * @stream: stream of peerlane_gpu_stream_create()
 * @kernel: the kernel
 * @nr_blocks: blocks
 * @nr_threads: threads in a block (CUDA only)
 * @args: pointers to the arguments, as for cuLaunchKernel; taken during the call
 * @arg_bytes: size of each argument
 * @nr_args: how many, up to 16
 *
 * Return: 0; -EINVAL; -EREMOTEIO the driver refused (see peerlane_error()); -ENOMEM.
 */
int peerlane_gpu_launch(struct peerlane *ctx, void *stream, const struct peerlane_kernel *kernel,
			unsigned int nr_blocks, unsigned int nr_threads, void **args,
			const size_t *arg_bytes, unsigned int nr_args);

/**
 * peerlane_sim_host() - where the CPU sees simulated GPU memory
 * @addr: address inside a live simulated allocation
 *
 * For the host functions of kernels only: code outside kernels that touches simulated GPU memory by
 * its own address faults, as it would with a real GPU.
 *
 * Return: host address; NULL if @addr is not simulated GPU memory.
 */
void *peerlane_sim_host(const void *addr);

/**
 * peerlane_sim_device() - the simulated GPU of this copy of the library
 *
 * A real GPU is shared by all libraries of a process. A library that has this one inside, as the
 * drop-in libcufile.so.0 has, looks for a function of this name that the program or one of its
 * libraries exports, and then uses that simulated GPU instead of its own.
 *
 * Return: for such libraries; programs have no use for it.
 */
const void *peerlane_sim_device(void);

/**
 * peerlane_sim_inject() - make the simulated GPU fail
 * @ctx: context on the simulator
 * @what: "copy", "alloc", "pin", "register", "launch", "event" or "hang"
 * @after: let this many such operations pass first
 * @count: then fail this many; 0 clears the fault
 *
 * "hang" makes copies never finish until it is cleared. Also by environment:
 * PEERLANE_SIM_FAIL="copy:3:1,pin:0:99".
 *
 * Return: 0; -EINVAL unknown word; -ENODEV not the simulator.
 */
int peerlane_sim_inject(struct peerlane *ctx, const char *what, unsigned int after,
			unsigned int count);

#ifdef __cplusplus
}
#endif

#endif
