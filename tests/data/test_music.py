"""Piano-rolls from every kind of file, and what is refused."""

import csv
import io
import json
import os
import pickle
import re
import struct
from pathlib import Path

import mido
import numpy as np
import pytest
from scipy.io import savemat

from mcfo.data.music_files import ORIGINALS, Original, _digest, download, read_music
from mcfo.data.piano_rolls import SPLITS, TimeGrid, read_midi, statistics, write_midi
from mcfo.data.tables import read_series
from mcfo.errors import InputError
from support.commands import invoke, refused

SHARED = Path(__file__).parents[3] / "shared" / "data" / "polyphonic"
NEEDS_SHARED = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data/polyphonic, which is not here")
NOTES = {
    "train": [[[60, 64], [60], []], [[21, 108]]],
    "valid": [[[50], [50, 51]]],
    "test": [[[70]], [[71], [72]]],
}


def rolls(notes=NOTES):
    found = {}
    for split, pieces in notes.items():
        found[split] = []
        for piece in pieces:
            roll = np.zeros((len(piece), 88), np.uint8)
            for step, chord in enumerate(piece):
                roll[step, np.array(chord, int) - 21] = 1
            found[split].append(roll)
    return found


def assert_same(found, wanted):
    assert list(found) == list(SPLITS)
    for split in SPLITS:
        assert len(found[split]) == len(wanted[split])
        for one, other in zip(found[split], wanted[split], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == np.uint8


def packed(splits):
    arrays = {}
    for split, pieces in splits.items():
        arrays[f"{split}_roll"] = np.packbits(np.concatenate(pieces), axis=1)
        arrays[f"{split}_lengths"] = np.array([len(piece) for piece in pieces], np.int32)
    return arrays


def cells(pieces):
    array = np.empty((1, len(pieces)), object)
    for place, piece in enumerate(pieces):
        array[0, place] = piece.astype(float)
    return array


def old_pickle(notes):
    """As Python 2 wrote it with numpy's numbers in tuples: text strings, protocol 0 and 2 names."""
    with_numpy = {
        split: [[tuple(np.int64(note) for note in chord) for chord in piece] for piece in pieces]
        for split, pieces in notes.items()
    }
    return pickle.dumps(with_numpy, protocol=2)


def write_all(folder):
    np.savez(folder / "a.npz", **packed(rolls()))
    (folder / "a.pickle").write_bytes(pickle.dumps(NOTES, protocol=0))
    (folder / "numpy.pkl").write_bytes(old_pickle(NOTES))
    (folder / "a.json").write_text(json.dumps(NOTES))
    savemat(folder / "a.mat", {f"{split}data": cells(pieces) for split, pieces in rolls().items()})


def test_every_kind_of_file_gives_the_same(tmp_path):
    write_all(tmp_path)
    for name in ("a.npz", "a.pickle", "numpy.pkl", "a.json", "a.mat"):
        assert_same(read_music(tmp_path / name), rolls())


@NEEDS_SHARED
def test_statistics_are_those_of_the_readme():
    """The table of the data's README, which was made by other code."""
    names = {"JSB Chorales": "jsb", "Nottingham": "nottingham", "MuseData": "musedata", "Piano-midi.de": "piano_midi"}
    rows = [line for line in (SHARED / "README.md").read_text().splitlines() if line.startswith("| ")]
    table = list(csv.reader(io.StringIO("\n".join(row.strip("| ") for row in rows)), delimiter="|"))
    compared = 0
    for name, split, *cells in ([cell.strip() for cell in row] for row in table[1:]):
        if name not in names:
            continue
        found = statistics(read_music(SHARED / f"{names[name]}.npz")[split])
        count, steps, least, mean, most, active, most_active, empty, midi = cells
        assert (found.series_list, found.steps) == (int(count), int(steps))
        assert (found.shortest, found.longest, found.most_active) == (int(least), int(most), int(most_active))
        assert (f"{found.mean:.2f}", f"{found.active:.4f}", f"{found.empty:.2%}") == (mean, active, empty)
        assert f"{found.lowest}-{found.highest}" == midi
        compared += 1
    assert compared == 12


def test_music_goes_to_midi_and_back(tmp_path):
    roll = np.zeros((6, 88), np.uint8)
    roll[0:3, 39] = 1  # held
    roll[1, 43] = 1
    roll[4:6, 39] = 1  # struck again after a rest
    roll[5, 0] = roll[5, 87] = 1
    for steps in (1, 2, 4, 7, 48):
        write_midi(tmp_path / f"{steps}.mid", roll, steps_per_quarter=steps)
        np.testing.assert_array_equal(read_midi(tmp_path / f"{steps}.mid", steps_per_quarter=steps), roll)
    doubled = read_midi(tmp_path / "2.mid", steps_per_quarter=4)
    np.testing.assert_array_equal(doubled, np.repeat(roll, 2, axis=0))
    # Heard by another reader: two notes of middle C, the first three eighths long.
    times, now = [], 0
    for message in mido.MidiFile(tmp_path / "2.mid").tracks[0]:
        now += message.time
        if message.type.startswith("note") and message.note == 60:
            times.append((message.type, now / 240))
    assert times == [("note_on", 0.0), ("note_off", 3.0), ("note_on", 4.0), ("note_off", 6.0)]


def test_the_same_piece_is_the_same_bytes(tmp_path):
    roll = (np.random.default_rng(0).random((300, 88)) < 0.3).astype(np.uint8)
    roll[0, 0] = roll[-1, 0] = 1
    for name, values in {"a.mid": roll, "b.mid": roll.astype(float), "c.mid": 1 - roll}.items():
        write_midi(tmp_path / name, values, steps_per_quarter=7)
    np.testing.assert_array_equal(read_midi(tmp_path / "a.mid", steps_per_quarter=7), roll)
    assert (tmp_path / "a.mid").read_bytes() == (tmp_path / "b.mid").read_bytes()
    assert (tmp_path / "a.mid").read_bytes() != (tmp_path / "c.mid").read_bytes()


def test_silence_around_a_piece_is_in_the_file(tmp_path):
    roll = np.zeros((9, 88), np.uint8)
    roll[2:4, 39] = roll[4, 40] = 1  # one note after the other, without a gap
    write_midi(tmp_path / "a.mid", roll, steps_per_quarter=2, beats_per_minute=120.0)
    track = mido.MidiFile(tmp_path / "a.mid").tracks[0]
    assert next(message.time for message in track if message.type == "note_on") == 2 * 240
    assert (track[-1].type, track[-1].time) == ("end_of_track", 4 * 240)
    assert mido.MidiFile(tmp_path / "a.mid").length == pytest.approx(9 * 0.25)
    # The reader begins with the first note and ends with the last.
    np.testing.assert_array_equal(read_midi(tmp_path / "a.mid"), roll[2:5])
    write_midi(tmp_path / "silent.mid", np.zeros((4, 88)))
    assert mido.MidiFile(tmp_path / "silent.mid").tracks[0][-1].time == 4 * 240
    with pytest.raises(InputError, match="has no notes"):
        read_midi(tmp_path / "silent.mid")


def midi(path, *messages, ticks=480, kind=1):
    track = mido.MidiTrack(messages)
    mido.MidiFile(type=kind, ticks_per_beat=ticks, tracks=[track]).save(path)
    return path


def on(note, time=0, **options):
    return mido.Message("note_on", note=note, time=time, **options)


def test_what_midi_files_do(tmp_path):
    """Running notes, velocity 0 for off, a note never let go, drums, a late beginning, a note shorter than a step."""
    path = midi(
        tmp_path / "a.mid",
        on(60, time=970),
        on(60, time=480, velocity=0),
        on(36, channel=9),
        on(64, time=10),
        on(64, time=20, velocity=0),
        on(67),
        mido.MetaMessage("end_of_track", time=470),
    )
    roll = read_midi(path, steps_per_quarter=2)
    # Begins at step 4.04, so that the roll's first step is the fourth.
    assert np.flatnonzero(roll[0]).tolist() == [39]
    assert [np.flatnonzero(step).tolist() for step in roll] == [[39], [39], [43, 46], [46]]


def test_folders(tmp_path):
    for number in range(5):
        midi(tmp_path / f"{number}.mid", on(60 + number), mido.Message("note_off", note=60 + number, time=480))
    found = read_music(tmp_path)
    assert [len(found[split]) for split in SPLITS] == [3, 1, 1]
    assert found["test"][0][0, 64 - 21] == 1
    for split, name in zip(SPLITS, ("0.mid", "1.mid", "2.mid"), strict=True):
        (tmp_path / split).mkdir()
        os.rename(tmp_path / name, tmp_path / split / "a.MID")
    found = read_music(tmp_path)
    assert [len(found[split]) for split in SPLITS] == [1, 1, 1]
    assert found["valid"][0][0, 61 - 21] == 1


class Attack:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (self.place,)


def attacks(place):
    yield pickle.dumps({"train": Attack(place)}), "posix.mkdir"
    yield pickle.dumps(Attack(place), protocol=0), "posix.mkdir"
    yield b"cbuiltins\neval\n(S'1'\ntR.", "builtins.eval"
    # Through what is admitted: a dtype of objects, a scalar of no whole number.
    yield b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.", "numpy.dtype('O8')"
    yield b"cnumpy.core.multiarray\nscalar\n(S'i8'\nS'a'\ntR.", "scalar on something else"
    yield b"P12\n.", "something that constructs objects"
    yield b"c_codecs\nencode\n(S'1'\nS'zip'\ntR.", "_codecs.encode with 'zip'"
    yield b"cmcfo.data.music_files\nread_pickle\n(S'x'\ntR.", "mcfo.data.music_files.read_pickle"


def test_a_malicious_pickle_runs_nothing(tmp_path):
    place = tmp_path / "made"
    for number, (content, name) in enumerate(attacks(str(place))):
        path = tmp_path / f"{number}.pickle"
        path.write_bytes(content)
        with pytest.raises(InputError, match=re.escape(name)):
            read_music(path)
    assert not place.exists()
    # Negative control: read freely, the first one does what it says.
    pickle.loads(next(attacks(str(place)))[0])
    assert place.exists()


def test_numbers_of_numpy_are_read_as_they_are():
    from mcfo.data.pickles import _Integer, _scalar

    for code, form, value in (("i4", "<i", -5), ("u1", "B", 200), ("i8", "<q", 108), ("u2", "<H", 60_000)):
        assert _scalar(_Integer(code), struct.pack(form, value)) == value
    big = _Integer("i4")
    big.__setstate__((3, ">", None, None, None, -1, -1, 0))
    assert _scalar(big, struct.pack(">i", 77)) == 77


def broken(tmp_path):
    def write(name, content):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    whole = io.BytesIO()
    np.savez(whole, **packed(rolls()))
    arrays = packed(rolls())

    def npz(name, **changes):
        path = tmp_path / f"{name}.npz"
        np.savez(path, **{key: value for key, value in (arrays | changes).items() if value is not None})
        return path

    def text(name, **changes):
        return write(f"{name}.json", json.dumps(NOTES | changes).encode())

    yield write("cut.npz", whole.getvalue()[:-200]), "damaged"
    yield npz("missing", test_roll=None), "no array 'test_roll'"
    yield npz("width", test_roll=np.zeros((3, 12), np.uint8)), "(steps, 11)"
    yield npz("sum", test_lengths=np.array([1, 1])), "whose sum is 3"
    yield npz("none", test_roll=np.zeros((0, 11), np.uint8), test_lengths=np.zeros(0, int)), "'test' is empty"
    yield text("low", test=[[[20]]]), "test, piece 1, step 1: the note 20 lies outside"
    yield text("high", valid=[[[60], [109]]]), "valid, piece 1, step 2: the note 109"
    yield text("word", valid=[[["C4"]]]), "'C4' is no MIDI number"
    yield text("truth", valid=[[[True]]]), "True is no MIDI number"
    yield text("flat", valid=[[60]]), "a list of notes is wanted"
    yield text("gone", valid=[]), "'valid' is empty"
    yield text("silent", valid=[[[], []]]), "no notes at all"
    yield text("short", valid=[[], [[60]]]), "piece 1 has no steps"
    yield write("list.json", b"[1, 2]"), "by name are wanted"
    yield write("half.json", b'{"train": [[[6'), "not JSON"
    yield write("half.pickle", pickle.dumps(NOTES)[:-9]), "damaged, or no pickle"
    yield write("half.mat", b"MATLAB 5.0 MAT-file, nothing"), "damaged, or no MATLAB file"
    yield write("notes.txt", b"60 64"), "are read"
    yield tmp_path / "nowhere.npz", "There is no file"
    savemat(tmp_path / "wide.mat", {f"{split}data": cells([np.ones((2, 90))]) for split in SPLITS})
    yield tmp_path / "wide.mat", "(steps, 88)"
    savemat(tmp_path / "twos.mat", {f"{split}data": cells([np.full((2, 88), 2)]) for split in SPLITS})
    yield tmp_path / "twos.mat", "other than 0 and 1"


def test_sampling_in_time_repeats_steps():
    """Quarter notes of 0.6 s, every 0.3 s: rounding gives the note before 7, 14, 28 quarters a third frame."""
    roll = np.eye(88, dtype=np.uint8)[np.arange(30) % 88]
    sampled = TimeGrid(0.3, 100, steps_per_quarter=1).sample(np.concatenate([roll, np.zeros((3, 88), np.uint8)]))
    repeats = np.bincount(sampled.argmax(axis=1))
    late = [k for k in range(31) if k * 600000 / 1e6 / 0.3 > 2 * k]
    assert late
    assert [k for k in range(30) if repeats[k] == 3] == [k - 1 for k in late]
    assert [k for k in range(30) if repeats[k] == 1] == [k for k in late if k < 30]
    np.testing.assert_array_equal(sampled, roll[np.repeat(np.arange(30), repeats)])
    # Control: where the quotients are exact, every note is doubled.
    np.testing.assert_array_equal(TimeGrid(0.25, 120, steps_per_quarter=1).sample(roll), np.repeat(roll, 2, axis=0))
    # Longer periods leave notes out, and silence has no frames.
    assert len(TimeGrid(1.0, 120, steps_per_quarter=2).sample(roll)) == 8
    assert TimeGrid(0.3).sample(np.zeros((4, 88), np.uint8)).shape == (0, 88)


@NEEDS_SHARED
def test_sampled_chorales_have_the_frames_of_public_files():
    splits = TimeGrid(0.3, 100, steps_per_quarter=1).sample_all(read_music(SHARED / "jsb.npz"))
    assert {split: sum(map(len, splits[split])) for split in ("train", "test")} == {"train": 27674, "test": 9473}
    first, sampled = read_music(SHARED / "jsb.npz")["test"][0], splits["test"][0]
    starts = [int(np.ceil(k * 600000 / 1e6 / 0.3)) for k in range(len(first) + 1)]
    np.testing.assert_array_equal(sampled, np.repeat(first, np.diff(starts), axis=0))
    tunes = TimeGrid(0.3, 120, steps_per_quarter=2).sample_all(read_music(SHARED / "nottingham.npz"))
    assert sum(map(len, tunes["test"])) == 37125


def test_what_is_broken_is_refused_with_its_place(tmp_path):
    for path, message in broken(tmp_path):
        with pytest.raises(InputError) as caught:
            read_music(path)
        assert message in str(caught.value), path.name


def test_bad_midi(tmp_path):
    silent = midi(tmp_path / "silent.mid", on(36, channel=9), mido.MetaMessage("end_of_track", time=480))
    with pytest.raises(InputError, match="has no notes"):
        read_midi(silent)
    with pytest.raises(InputError, match="the note 12 lies outside"):
        read_midi(midi(tmp_path / "low.mid", on(12), mido.MetaMessage("end_of_track", time=480)))
    (tmp_path / "text.mid").write_text("no music")
    with pytest.raises(InputError, match="damaged, or no MIDI file"):
        read_midi(tmp_path / "text.mid")
    whole = (tmp_path / "low.mid").read_bytes()
    (tmp_path / "cut.mid").write_bytes(whole[:-6])
    with pytest.raises(InputError, match="damaged, or no MIDI file"):
        read_midi(tmp_path / "cut.mid")
    with pytest.raises(InputError, match="asks for 23622320128 elements"):
        read_midi(midi(tmp_path / "long.mid", on(60), mido.Message("note_off", note=60, time=2**27), ticks=1))
    for values in (np.zeros((3, 12)), np.zeros(88), np.full((3, 88), 0.5), np.full((3, 88), np.nan)):
        with pytest.raises(InputError, match=r"shape \(steps, 88\) and zeros and ones"):
            write_midi(tmp_path / "x.mid", values)
    for steps in (0, 481):
        with pytest.raises(InputError, match=f"from 1 to 480 steps, but got {steps}"):
            write_midi(tmp_path / "x.mid", np.ones((3, 88)), steps_per_quarter=steps)
    assert not (tmp_path / "x.mid").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has 0 MIDI files"):
        read_music(tmp_path / "empty")


def test_the_command(tmp_path):
    write_all(tmp_path)
    result = invoke("data", "music", "--from", tmp_path / "a.json", "--out", tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert "21-108" in result.stdout
    files = f"--data {tmp_path}/m/train.npz --validation {tmp_path}/m/valid.npz --out {tmp_path}/m-run"
    assert result.stdout.endswith(f"\nLearn from it: mcfo fit vrnn {files}\n")
    sampled = invoke(
        "data", "music", "--from", tmp_path / "a.json", "--out", tmp_path / "s", "--sampling-period", "0.15"
    )
    assert sampled.exit_code == 0, sampled.output
    np.testing.assert_array_equal(
        read_series(tmp_path / "s" / "valid.npz").series_list[0].observations, np.repeat(rolls()["valid"][0], 2, axis=0)
    )
    found = read_series(tmp_path / "m" / "train.npz")
    np.testing.assert_array_equal(found.series_list[1].observations, rolls()["train"][1])
    for arguments, message in (
        ([], "Give either a file with --from"),
        (["--from", "x.npz", "--download", "jsb"], "Give either a file with --from"),
        (["--download", "jbs"], "There is no data set 'jbs'"),
        (["--from", tmp_path / "a.json", "--out", tmp_path / "n", "--sampling-period", "0"], "is a number above zero"),
        (
            ["--from", tmp_path / "a.json", "--out", tmp_path / "n", "--sampling-period", "1e-9"],
            "longer sampling period",
        ),
        (["--from", tmp_path / "a.json", "--out", tmp_path / "m"], "exists already"),
    ):
        assert refused(invoke("data", "music", *arguments), message)


def test_downloads_are_checked(tmp_path, monkeypatch):
    """A file of this machine serves as the source; the real one is elsewhere."""
    (tmp_path / "JSB_Chorales.mat").write_bytes(b"another file")
    source, folder = tmp_path.as_uri() + "/", tmp_path / "kept"
    folder.mkdir()
    with pytest.raises(InputError, match="is another file"):
        download("jsb", folder, source=source)
    assert list(folder.iterdir()) == []
    right = _digest(b"another file")
    monkeypatch.setitem(ORIGINALS, "jsb", Original("JSB_Chorales.mat", right))
    assert download("jsb", folder, source=source).read_bytes() == b"another file"
    (tmp_path / "JSB_Chorales.mat").unlink()
    assert download("jsb", folder, source=source).exists(), "what is there is not fetched again"
    with pytest.raises(InputError, match="Where there is no network"):
        download("nottingham", folder, source=source)
