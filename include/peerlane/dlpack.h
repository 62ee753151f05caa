/* SPDX-License-Identifier: MIT */
/*
 * Destructors for DLPack capsules of the Python package. They are C because a consumer may drop a
 * capsule while a Python exception is pending, when no Python function can run, and may call the
 * deleter from any thread, with or without the GIL.
 *
 * In each structure manager_ctx is a Python object, of which the structure owns one reference.
 */
#ifndef PEERLANE_DLPACK_H
#define PEERLANE_DLPACK_H

#ifdef __cplusplus
extern "C" {
#endif

/**
 * peerlane_dlpack_delete() - deleter of a DLManagedTensor
 * @managed: the DLManagedTensor, or NULL; not valid afterwards
 *
 * Drops the reference in manager_ctx. Outside of a Python interpreter, or after its end, it does
 * nothing.
 *
 * Context: any thread, with or without the GIL; a pending exception stays.
 */
void peerlane_dlpack_delete(void *managed);

/**
 * peerlane_dlpack_delete_versioned() - deleter of a DLManagedTensorVersioned
 * @managed: the DLManagedTensorVersioned, or NULL; not valid afterwards
 *
 * See peerlane_dlpack_delete().
 */
void peerlane_dlpack_delete_versioned(void *managed);

/**
 * peerlane_dlpack_destroy() - destructor of a capsule
 * @capsule: a PyCapsule with a structure of either kind
 *
 * Deletes the structure unless a consumer has taken it and renamed the capsule.
 *
 * Context: with the GIL; a pending exception stays.
 */
void peerlane_dlpack_destroy(void *capsule);

#ifdef __cplusplus
}
#endif

#endif
