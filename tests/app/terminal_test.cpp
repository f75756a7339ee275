// The parts of the line editor that need no terminal. chat_terminal.py tests the whole through a pseudo terminal.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "terminal/edit_buffer.h"
#include "terminal/graphemes.h"
#include "terminal/history.h"
#include "terminal/keys.h"
#include "terminal/layout.h"
#include "terminal/line_editor.h"

namespace lily {
namespace {

constexpr const char* kFamily = "👩‍👩‍👧";  // three people, joined

TEST(Graphemes, SizesAndWidths) {
  EXPECT_EQ(cluster_size("ab", 0), 1U);
  EXPECT_EQ(cluster_size("e\u0301x", 0), 3U);
  EXPECT_EQ(cluster_size(kFamily, 0), std::string_view(kFamily).size());
  EXPECT_EQ(cluster_before("aé", 3), 1U);
  EXPECT_EQ(cluster_before("x\ny", 2), 1U);
  EXPECT_EQ(cluster_before("\n", 1), 0U);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("你好"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width(kFamily), 2);
  EXPECT_EQ(display_width("❤\ufe0f"), 2);
  EXPECT_EQ(display_width("\x1b\t"), 6);
  EXPECT_EQ(glyph_of("\x1b").text, "^[");
}

std::string name_of(Key::Kind kind) {
  return fmt::format("<{}>", static_cast<int>(kind));
}

std::string keys_of(std::string_view bytes, bool last = true) {
  KeyDecoder decoder;
  decoder.push(bytes);
  std::string all;
  while (const auto key = decoder.next(last)) {
    switch (key->kind) {
      case Key::Kind::kText:
        all += fmt::format("[{}]", key->text);
        break;
      case Key::Kind::kPaste:
        all += fmt::format("({})", key->text);
        break;
      default:
        all += name_of(key->kind);
    }
  }
  return all;
}

TEST(Keys, TextAndControl) {
  EXPECT_EQ(keys_of("aé你"), "[aé你]");
  EXPECT_EQ(keys_of("a\r"), std::string("[a]") + name_of(Key::Kind::kEnter));
  EXPECT_EQ(keys_of("\x03\x04\x7f"),
            name_of(Key::Kind::kInterrupt) + name_of(Key::Kind::kEndOfInput) + name_of(Key::Kind::kBackspace));
  EXPECT_EQ(keys_of("a\xff"
                    "b"),
            "[a\ufffd"
            "b]");
}

TEST(Keys, Sequences) {
  EXPECT_EQ(keys_of("\x1b[A\x1bOA"), name_of(Key::Kind::kUp) + name_of(Key::Kind::kUp));
  EXPECT_EQ(keys_of("\x1b[1;5D\x1b"
                    "b"),
            name_of(Key::Kind::kWordLeft) + name_of(Key::Kind::kWordLeft));
  EXPECT_EQ(keys_of("\x1b[3~\x1b[H\x1b[4~"),
            name_of(Key::Kind::kDelete) + name_of(Key::Kind::kLineBegin) + name_of(Key::Kind::kLineEnd));
  EXPECT_EQ(keys_of("\x1b\r\n"), name_of(Key::Kind::kNewline) + name_of(Key::Kind::kNewline));
  EXPECT_EQ(keys_of("\x1b[12;34;56zx"), name_of(Key::Kind::kUnknown) + "[x]");
  EXPECT_EQ(keys_of("\x1b"), name_of(Key::Kind::kUnknown));
}

TEST(Keys, PastesAreOneKey) {
  EXPECT_EQ(keys_of("a\x1b[200~x\ry\r\nz\x03\x1b[A\x1b[201~b"), "[a](x\ny\nz\x03\x1b[A)[b]");
  EXPECT_EQ(keys_of("\x1b[200~never closed\r"), "");
}

TEST(Keys, CutsDoNotMatter) {
  const std::string bytes =
      "aé\x1b[A你\r\x1b[200~p\nq\x1b[201~\x1b[1;5C\x7f👩‍👩‍👧\x1b"
      "bx";
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    KeyDecoder decoder;
    std::string text;
    std::string kinds;
    const auto drain = [&](bool last) {
      while (const auto key = decoder.next(last)) {
        text += key->text;
        if (key->kind != Key::Kind::kText) kinds += name_of(key->kind);
      }
    };
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + random() % 4;
      decoder.push(std::string_view(bytes).substr(at, size));
      at += size;
      drain(false);
    }
    drain(true);
    EXPECT_EQ(text, "aé你p\nq👩‍👩‍👧x");
    EXPECT_EQ(kinds, name_of(Key::Kind::kUp) + name_of(Key::Kind::kEnter) + name_of(Key::Kind::kPaste) +
                         name_of(Key::Kind::kWordRight) + name_of(Key::Kind::kBackspace) +
                         name_of(Key::Kind::kWordLeft));
  }
}

// The text with a | for the cursor.
std::string shown(const EditBuffer& buffer) {
  std::string text = buffer.text();
  return text.insert(buffer.cursor(), 1, '|');
}

TEST(EditBuffer, MovesAndErasesByWhatIsSeen) {
  EditBuffer buffer;
  buffer.set(std::string("a") + kFamily + "e\u0301");
  buffer.left();
  EXPECT_EQ(shown(buffer), std::string("a") + kFamily + "|e\u0301");
  buffer.erase_left();
  EXPECT_EQ(shown(buffer), "a|e\u0301");
  buffer.erase_right();
  EXPECT_EQ(shown(buffer), "a|");
  buffer.right();
  buffer.erase_right();
  buffer.left();
  buffer.left();
  buffer.erase_left();
  EXPECT_EQ(shown(buffer), "|a");
}

TEST(EditBuffer, Words) {
  EditBuffer buffer;
  buffer.set("one, tw\u00f6 three");
  buffer.word_left();
  buffer.word_left();
  EXPECT_EQ(shown(buffer), "one, |tw\u00f6 three");
  buffer.kill_word_right();
  EXPECT_EQ(shown(buffer), "one, | three");
  buffer.kill_word_left();
  EXPECT_EQ(shown(buffer), "| three");
  buffer.yank();
  EXPECT_EQ(shown(buffer), "one, | three");
}

TEST(EditBuffer, Lines) {
  EditBuffer buffer;
  buffer.set("你好吗\nabc\n\nxyz");
  EXPECT_TRUE(buffer.up());
  EXPECT_EQ(shown(buffer), "你好吗\nabc\n|\nxyz");
  EXPECT_TRUE(buffer.up());
  buffer.line_end();
  EXPECT_TRUE(buffer.up());
  EXPECT_EQ(shown(buffer), "你|好吗\nabc\n\nxyz");  // column 3 is inside the second character
  EXPECT_FALSE(buffer.up());
  EXPECT_TRUE(buffer.down());
  EXPECT_EQ(shown(buffer), "你好吗\nab|c\n\nxyz");
  buffer.kill_to_line_end();
  buffer.kill_to_line_end();
  EXPECT_EQ(shown(buffer), "你好吗\nab|\nxyz");
  buffer.kill_to_line_begin();
  EXPECT_EQ(shown(buffer), "你好吗\n|\nxyz");
}

TEST(Layout, WrapsAndPlacesTheCursor) {
  using Rows = std::vector<std::string>;
  const auto rows = [](const char* text, int columns) { return lay_out(text, 0, columns, 2).rows; };
  EXPECT_EQ(rows("", 10), Rows{""});
  EXPECT_EQ(rows("abcdefgh", 10), Rows{"abcdefgh"});
  EXPECT_EQ(rows("abcdefghi", 10), (Rows{"abcdefgh", "  i"}));
  EXPECT_EQ(rows("abcdefg你", 10), (Rows{"abcdefg", "  你"}));
  EXPECT_EQ(rows("a\n\nb", 10), (Rows{"a", "  ", "  b"}));
  EXPECT_EQ(rows("abcd", 1), (Rows{"abcd"}));
  const Layout full = lay_out("abcdefgh", 8, 10, 2);
  EXPECT_EQ(full.cursor_row, 1U);  // the end of a full row is the beginning of the next
  EXPECT_EQ(full.cursor_column, 2);
  const Layout wide = lay_out("你好\nx", 6, 10, 2);
  EXPECT_EQ(wide.cursor_row, 0U);
  EXPECT_EQ(wide.cursor_column, 6);
}

TEST(Input, ContinuesAfterBackslashesAndInQuotes) {
  const auto continued = [](std::string text) { return continue_input(text) ? text : "complete"; };
  EXPECT_EQ(continued("text"), "complete");
  EXPECT_EQ(continued(""), "complete");
  EXPECT_EQ(continued("one\\"), "one\n");
  EXPECT_EQ(continued("a path\\\\"), "complete");
  EXPECT_EQ(continued("\"\"\"one\\"), "\"\"\"one\\\n");
  EXPECT_EQ(continued("\"\"\""), "\"\"\"\n");
  EXPECT_EQ(continued("\"\"\"\none\n\"\"\" "), "complete");
  EXPECT_EQ(input_text("\"\"\"\n one\ntwo\\\n\n\"\"\"\n"), " one\ntwo\\\n");
  EXPECT_EQ(input_text("\"\"\"one\"\"\""), "one");
  EXPECT_EQ(input_text(" as it is \"\"\""), " as it is \"\"\"");
  EXPECT_EQ(input_text("\"\"\"open"), "\"\"\"open");
}

class HistoryFile : public testing::Test {
 public:
  HistoryFile() : folder_(std::filesystem::temp_directory_path() / ("lily_history_" + std::to_string(::getpid()))) {}
  ~HistoryFile() override { std::filesystem::remove_all(folder_); }

 protected:
  std::filesystem::path file() const { return folder_ / "state" / "chat_history"; }

 private:
  std::filesystem::path folder_;
};

TEST_F(HistoryFile, KeepsEntries) {
  {
    History history(file());
    history.add("one");
    history.add("one");
    history.add("  \n");
    history.add("two\nlines \\n and a \\");
    history.add(std::string(History::kLongestEntry + 1, 'x'));
    EXPECT_EQ(history.entries().size(), 3U);
  }
  const History again(file());
  EXPECT_EQ(again.entries(), (std::vector<std::string>{"one", "two\nlines \\n and a \\"}));
  EXPECT_EQ(std::filesystem::status(file()).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(HistoryFile, IsBounded) {
  {
    History history(file());
    for (std::size_t i = 0; i < 2 * History::kMaxEntries; ++i) history.add(std::to_string(i));
  }
  const History again(file());
  ASSERT_EQ(again.entries().size(), History::kMaxEntries);
  EXPECT_EQ(again.entries().front(), "1000");
  EXPECT_EQ(History(file()).entries().size(), History::kMaxEntries);
  std::ifstream input(file());
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>(), '\n'), 1000);
}

TEST_F(HistoryFile, BadFilesAreNoTrouble) {
  std::filesystem::create_directories(file());  // a folder in its place
  History history(file());
  history.add("x");
  EXPECT_EQ(history.entries().size(), 1U);
}

}  // namespace
}  // namespace lily
