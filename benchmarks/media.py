"""Images and frames per CPU second: decoded, resized and cut into patches, by threads and by a DataLoader's workers.

All do the same work on the same files in memory: a batch of uint8 patches in Qwen2-VL's order. Ours writes it from two
threads into the batch's own buffer; torch's DataLoader has two workers that call the same functions; spdl (where it is
installed, with FFmpeg) decodes on two threads of its own and has its patches cut by ours. Rounds are interleaved; CPU
seconds are those of the process and of its workers. A second table compares decoders of JPEG on one thread.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import active_children
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, JpegImagePlugin

from loadmaster_flight.transforms.image import decode_planes, image_size
from loadmaster_flight.transforms.limits import MediaLimits
from loadmaster_flight.transforms.patches import planes_to_patches, smart_resize, to_patches
from loadmaster_flight.transforms.planes import split
from loadmaster_flight.transforms.video import chosen_times, decode_video, probe_video

sys.path.insert(0, str(Path(__file__).parent))
from cpu import cpu_s
from media_samples import clip, jpeg, mosaic, photographs
from peers import media_spdl
from peers.media_dataloader import DataLoaderPeer

Pixels = npt.NDArray[np.uint8]
LIMITS = MediaLimits(max_bytes=64 << 20, max_pixels=100_000_000)
PATCH, MERGE, TEMPORAL = 14, 2, 2
DIM = 3 * TEMPORAL * PATCH**2
MAX_PIXELS, CLIP_MAX_PIXELS, FPS = 1_003_520, 602_112, 10
BATCH = 8
THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Files of one kind and what becomes of them.

    Attributes:
        name: Of the table's row.
        files: Encoded, in memory.
        size: Height and width that all are resized to.
        frames: Frames of each file, 1 of an image.
        unit: What is counted: images or frames.
        write: Decodes a file into its patches of a buffer.
        peer: spdl's decoder to frames.
    """

    name: str
    files: Sequence[bytes]
    size: tuple[int, int]
    frames: int
    unit: str
    write: Callable[[bytes, Pixels], None]
    peer: Callable[[], Callable[[bytes], Pixels]]

    @property
    def num_patches(self) -> int:
        return -(-self.frames // TEMPORAL) * self.size[0] * self.size[1] // PATCH**2


def image_case(name: str, files: Sequence[bytes]) -> Case:
    """JPEGs of one size."""
    size = smart_resize(*image_size(files[0], LIMITS), PATCH * MERGE, 3136, MAX_PIXELS)

    def write(data: bytes, out: Pixels) -> None:
        planes = decode_planes(data, size, LIMITS)
        planes_to_patches(planes, patch=PATCH, merge=MERGE, temporal=TEMPORAL, out=out)

    return Case(
        name=name,
        files=files,
        size=size,
        frames=1,
        unit="images",
        write=write,
        peer=lambda: media_spdl.image_decoder(size),
    )


def clip_case(name: str, files: Sequence[bytes]) -> Case:
    """Clips of one size and length; ten frames a second are served."""
    info = probe_video(files[0], LIMITS)
    size = smart_resize(info.height, info.width, PATCH * MERGE, 3136, CLIP_MAX_PIXELS)
    times_T = chosen_times(info, FPS, 2, 64, TEMPORAL)

    def write(data: bytes, out: Pixels) -> None:
        frames = decode_video(data, times_T, size, LIMITS)
        planes_to_patches(split(frames), patch=PATCH, merge=MERGE, temporal=TEMPORAL, out=out)

    return Case(
        name=name,
        files=files,
        size=size,
        frames=len(times_T),
        unit="frames",
        write=write,
        peer=lambda: media_spdl.clip_decoder(size, FPS),
    )


def run_threads(case: Case, pool: ThreadPoolExecutor) -> None:
    """One pass of ours: every file writes its own part of its batch."""
    num = case.num_patches
    for batch in _batched(case.files):
        pixels_PD = np.empty((len(batch) * num, DIM), np.uint8)
        parts = [pixels_PD[i * num : (i + 1) * num] for i in range(len(batch))]
        list(pool.map(case.write, batch, parts))


def _batched(files: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [files[i : i + BATCH] for i in range(0, len(files), BATCH)]


def run_spdl(case: Case) -> None:
    """One pass of spdl's pipeline."""
    decode = case.peer()

    def patches(data: bytes) -> None:
        to_patches(decode(data), patch=PATCH, merge=MERGE, temporal=TEMPORAL)

    media_spdl.run_threads(patches, case.files)


def dataloader(case: Case) -> DataLoaderPeer:
    """The peer for a case, with the same functions."""

    def decode(data: bytes) -> Pixels:
        out = np.empty((case.num_patches, DIM), np.uint8)
        case.write(data, out)
        return out

    return DataLoaderPeer(case.files, decode, BATCH)


def drain(peer: DataLoaderPeer) -> None:
    """One pass of a DataLoader."""
    for _ in peer.batches():
        pass


def measured(run: Callable[[], None], workers: Sequence[int] = ()) -> tuple[float, float]:
    """CPU seconds of this process and of workers, and wall seconds, of one pass."""
    before, own, wall = cpu_s(workers), time.process_time(), time.perf_counter()
    run()
    return time.process_time() - own + cpu_s(workers) - before, time.perf_counter() - wall


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Medians over rounds, of one way: things per CPU second and per second, and how much more ours did in a round."""

    per_cpu_s: float
    per_s: float
    ours_over: float


def compare(case: Case, rounds: int) -> dict[str, Speed]:
    """Run all ways in turn; the first round warms up and is not counted."""
    known = {child.pid for child in active_children()}
    peer = dataloader(case)
    taken: dict[str, list[tuple[float, float]]] = {"threads": [], "DataLoader": [], "spdl": []}
    drain(peer)  # before any thread exists: the workers are forked
    workers = [child.pid for child in active_children() if child.pid not in known and child.pid is not None]
    with ThreadPoolExecutor(THREADS) as pool:
        for number in range(rounds + 1):
            results = {
                "threads": measured(lambda: run_threads(case, pool)),
                "DataLoader": measured(lambda: drain(peer), workers),
            }
            if media_spdl.missing() is None:
                results["spdl"] = measured(lambda: run_spdl(case))
            if number:
                for name, result in results.items():
                    taken[name].append(result)
    count = len(case.files) * case.frames
    return {
        name: Speed(
            per_cpu_s=count / statistics.median(cpu for cpu, _ in pairs),
            per_s=count / statistics.median(wall for _, wall in pairs),
            ours_over=statistics.median(
                cpu / ours for (cpu, _), (ours, _) in zip(pairs, taken["threads"], strict=True)
            ),
        )
        for name, pairs in taken.items()
        if pairs
    }


def jpeg_decoders(data: bytes, size: tuple[int, int]) -> dict[str, Callable[[], object]]:
    """Ways from a JPEG's bytes to RGB of a size."""
    height, width = size

    def pillow(*, is_scaled: bool) -> object:
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(data))
        if is_scaled:
            image.draft("RGB", (width, height))
        return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))

    def simplejpeg_and_pillow() -> object:
        pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width, min_factor=2)
        return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))

    def pyav() -> object:
        with av.open(io.BytesIO(data), format="jpeg_pipe") as container:
            frame = next(container.decode(video=0))
            return frame.reformat(width, height, "rgb24", interpolation="BICUBIC", threads=1).to_ndarray()

    return {
        "simplejpeg + swscale (ours)": lambda: decode_planes(data, size, LIMITS),
        "simplejpeg + Pillow": simplejpeg_and_pillow,
        "Pillow, scaled decode": lambda: pillow(is_scaled=True),
        "Pillow": lambda: pillow(is_scaled=False),
        "PyAV": pyav,
    }


def decoder_times(data: bytes, size: tuple[int, int], rounds: int) -> dict[str, float]:
    """Median CPU milliseconds of each way, interleaved."""
    ways = jpeg_decoders(data, size)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            start = time.thread_time()
            run()
            taken[name].append(1000 * (time.thread_time() - start))
    return {name: statistics.median(times) for name, times in taken.items()}


def copied(case: Case) -> dict[str, int]:
    """Bytes of each buffer that one image passes through, from what the functions really return."""
    planes = decode_planes(case.files[0], case.size, LIMITS)
    height, width = image_size(case.files[0], LIMITS)
    return {
        "decoded": 3 * height * width,
        "resized": sum(plane.nbytes for plane in planes),
        "patches": case.num_patches * DIM,
    }


def show(case: Case, speeds: dict[str, Speed]) -> None:
    print(f"\n{case.name} -> {case.size[0]}x{case.size[1]}, {len(case.files)} files")
    print(f"  {'':12} {case.unit + '/CPU s':>14} {case.unit + '/s':>12} {'ours over it':>14}")
    for name, speed in speeds.items():
        print(f"  {name:12} {speed.per_cpu_s:14.1f} {speed.per_s:12.1f} {speed.ours_over:14.2f}")
    if "spdl" not in speeds:
        print(f"  {'spdl':12} {media_spdl.missing()}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer files and rounds; under a minute")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args(arguments)
    rounds, scale = (5, 3) if options.quick else (9, 6)
    photos = photographs()
    small = [jpeg(mosaic(photos, 427, 640, seed)) for seed in range(24)]
    large = [jpeg(mosaic(photos, 1280, 1920, seed)) for seed in range(6)]
    clips = [clip(photos, 720, 1280, 48, seed) for seed in range(2)]
    cases = (
        image_case("JPEG 427x640", small * scale),
        image_case("JPEG 1280x1920", large * scale),
        clip_case(f"H.264 720x1280, 48 frames, {FPS} of 30 a second", clips * scale),
    )
    speeds = [compare(case, rounds) for case in cases]
    for case, speed in zip(cases, speeds, strict=True):
        show(case, speed)
    print("\nJPEG to RGB on one thread, CPU ms")
    sizes = (("427x640", small[0], cases[0].size), ("1280x1920", large[0], cases[1].size))
    decoders = {f"{name} -> {size[0]}x{size[1]}": decoder_times(data, size, 5 * rounds) for name, data, size in sizes}
    decoders["1280x1920 -> 224x224"] = decoder_times(large[0], (224, 224), 5 * rounds)
    for name, times in decoders.items():
        print(f"  {name}: " + ", ".join(f"{way} {ms:.2f}" for way, ms in times.items()))
    buffers = copied(cases[0])
    print("\nBuffers of one image of 427x640, bytes: " + ", ".join(f"{k} {v:,}" for k, v in buffers.items()))
    print("  copied after decoding and resizing: once, into its place in the batch")
    if options.json:
        over = [speed["DataLoader"].ours_over for speed in speeds]
        answer = {
            "images_over_dataloader": round(statistics.geometric_mean(over[:2]), 3),
            "frames_over_dataloader": round(over[2], 3),
            "images_per_cpu_s": [round(speed["threads"].per_cpu_s, 1) for speed in speeds[:2]],
            "frames_per_cpu_s": round(speeds[2]["threads"].per_cpu_s, 1),
            "over_spdl": [round(speed["spdl"].ours_over, 3) for speed in speeds if "spdl" in speed],
            "bytes_copied_per_image": buffers["patches"],
            "jpeg_ms": {name: {way: round(ms, 2) for way, ms in times.items()} for name, times in decoders.items()},
        }
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
