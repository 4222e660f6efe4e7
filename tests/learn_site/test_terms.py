"""Chinese text uses the terms of the glossary, and no other word for the same thing."""

import json
import re
from itertools import pairwise

import pytest

from regard.exchange.to_web import page_source
from regard.explain.page_assets import asset
from regard.learn.render import split_blocks
from regard.learn.sources import ASSETS, PAGES, repository

# The word of the glossary, and words that Chinese texts use for the same thing.
VARIANTS = {
    "注意力": ("关注度", "关注机制", "自我注意", "自关注", "注意机制"),
    "注意力头": ("注意头", "关注头"),
    "多头注意力": ("多头关注", "多头自我"),
    "交叉注意力": ("互注意力", "编码-解码注意力", "编码解码注意力"),
    "缩放点积注意力": ("放缩点积", "比例点积"),
    "掩码": ("掩膜", "遮罩", "掩模", "蒙版", "掩蔽"),
    "因果掩码": ("前瞻掩码", "未来掩码", "三角掩码"),
    "查询": ("询问向量", "检索向量"),
    "点积": ("点乘", "内积"),
    "词元": ("令牌", "标记符"),
    "子词": ("亚词", "字词", "子字"),
    "词表": ("词汇表",),
    "分词器": ("切词器", "标记器", "词元化器"),
    "字节对编码": ("字符对编码", "双字节编码"),
    "平行语料": ("双语对照语料", "并行语料"),
    "批次": ("小批量", "批量大小"),
    "填充": ("补齐符", "补零"),
    "开发集": ("验证集",),
    "编码器": ("编码机", "编码端"),
    "解码器": ("译码器", "解码端"),
    "词嵌入": ("嵌入词", "词向量"),
    "位置编码": ("位置嵌入编码", "位置信息编码"),
    "前馈网络": ("前向网络", "前馈神经网络", "前向神经网络"),
    "残差连接": ("残差链接", "跳跃连接", "跳连接"),
    "层归一化": ("层标准化", "层规范化", "层正则化", "层归一"),
    "随机失活": ("暂退法", "丢弃法", "丢弃率"),
    "损失": ("代价函数", "损耗函数"),
    "交叉熵": ("互熵",),
    "梯度裁剪": ("梯度剪裁", "梯度截断", "梯度剪切"),
    "优化器": ("最优化器", "优化算子"),
    "学习率": ("学习速率", "学习步长"),
    "学习率预热": ("热身", "暖启动"),
    "标签平滑": ("标记平滑", "标签光滑"),
    "教师强制": ("教师强迫", "导师驱动", "强制教学"),
    "过拟合": ("过度拟合", "过配"),
    "检查点": ("存档点", "校验点", "检查站"),
    "随机种子": ("随机数种子", "随机籽"),
    "消融": ("切除实验", "消去实验"),
    "知识蒸馏": ("知识提炼", "知识精炼"),
    "束搜索": ("集束搜索", "波束搜索", "柱搜索", "定向搜索"),
    "束宽": ("集束大小", "束大小"),
    "贪心搜索": ("贪婪",),
    "长度惩罚": ("长度罚项", "长度处罚"),
    "参考译文": ("参考答案译文", "标准译文"),
    "困惑度": ("混乱度", "迷惑度", "复杂度指标"),
    "显著性检验": ("显著性测试", "显著度检验"),
    "循环神经网络": ("递归神经网络", "回归神经网络"),
    "积分梯度": ("集成梯度", "综合梯度"),
    "留一法": ("去一法", "留一验证"),
}
LONGER = {"层归一": "层归一化"}  # a variant that is the beginning of the term
# English words that mean other things as well: their Chinese terms need not be in a chapter that has them.
COMMON = {
    "value",
    "key",
    "query",
    "reference",
    "batch",
    "recipe",
    "parameter",
    "loss",
    "token",
    "alignment",
    "mask",
    "hypothesis",
}


def chinese_texts():
    """Name and text of everything in Chinese."""
    found = {f"zh/{path.name}": path.read_text(encoding="utf-8") for path in sorted((PAGES / "zh").glob("*.md"))}
    found |= {path.name: path.read_text(encoding="utf-8") for path in sorted(repository().glob("*.zh.md"))}
    others = (ASSETS / "live" / "words.js", PAGES / "zh" / "recipes.toml")
    return found | {path.name: path.read_text(encoding="utf-8") for path in others}


def glossary(lang):
    """The entries: each term with the words in bold behind it."""
    blocks = split_blocks((PAGES / lang / "glossary.md").read_text(encoding="utf-8"))
    return [(one.text, re.match(r"[^.]+", after.text)[0]) for one, after in pairwise(blocks) if one.kind == "h3"]


def test_each_entry_has_the_term_of_the_other_language():
    english, chinese = glossary("en"), glossary("zh")
    assert len(english) == len(chinese) >= 60
    for (term, translation), (term_zh, translation_zh) in zip(english, chinese, strict=True):
        assert re.sub(r" \(.*\)", "", translation) == term_zh
        assert re.sub(r" \(.*\)", "", translation_zh) == term


def test_a_term_has_one_entry():
    for lang in ("en", "zh"):
        terms = [term for term, _ in glossary(lang)]
        assert len(terms) == len(set(terms))


@pytest.mark.parametrize("name", chinese_texts())
def test_no_other_word_is_used_for_a_term(name):
    text = chinese_texts()[name]
    for term, variants in VARIANTS.items():
        for variant in variants:
            without = text.replace(LONGER[variant], "") if variant in LONGER else text
            assert variant not in without, f"{name} says {variant}; the glossary says {term}"


def test_the_terms_with_variants_are_in_the_glossary():
    text = (PAGES / "zh" / "glossary.md").read_text(encoding="utf-8")
    assert [term for term in VARIANTS if term not in text] == []


@pytest.mark.parametrize("name", [name for name in chinese_texts() if name.startswith("zh/")])
def test_a_term_of_the_english_chapter_is_in_the_chinese(name):
    english = (PAGES / "en" / name.removeprefix("zh/")).read_text(encoding="utf-8").lower()
    prose = re.sub(r"^```.*?^```|`[^`]*`|attention is all you need", "", english, flags=re.M | re.S)
    for term, term_zh in glossary("en"):
        if term.lower() not in COMMON and re.search(rf"\b{re.escape(term.lower())}s?\b", prose):
            wanted = re.sub(r" \(.*\)", "", term_zh)
            assert wanted in chinese_texts()[name], f"{name} does not have {wanted}, which is {term} in English"


SIDES = ("with_it", "without_it")
SHARED = ("chart.js", "heatmap.js")  # pictures of other pages that figures use
LITERAL = r'"((?:[^"\\]|\\.)*)"'


def live_strings(*names):
    """What figures say: the literals handed to `say`, in the figure and in what figures share."""
    texts = [(ASSETS / "live" / f"{name}.js").read_text(encoding="utf-8") for name in names]
    return {text for one in [*texts, *map(asset, SHARED)] for text in re.findall(rf"\bsay\({LITERAL}", one)}


def chinese_strings():
    table = chinese_texts()["words.js"].split("const CHINESE = {")[1].split("\n};")[0]
    pairs = re.findall(rf'^  (?:{LITERAL}|(\w+)):\s+"((?:[^"\\]|\\.)*)",$', table, flags=re.M)
    return {quoted or plain: chinese for quoted, plain, chinese in pairs}


def ablated():
    """What the chapter of ablations calls its models."""
    found = json.loads((repository() / "benchmarks" / "results" / "ablations.json").read_text(encoding="utf-8"))
    sides = [result["seeds"][0][side]["name"] for result in found["ablations"].values() for side in SIDES]
    return {name for name in sides if "(x)" not in name}  # formulas are the same in both languages


def test_models_of_the_ablations_have_chinese_names():
    assert sorted(ablated() - set(chinese_strings())) == []


def test_figures_of_translated_chapters_speak_chinese():
    translated = [path.stem for path in (PAGES / "zh").glob("*.md")]
    chapters = "".join((PAGES / "en" / f"{name}.md").read_text(encoding="utf-8") for name in translated)
    figures = [f"figure_{name}" for name in set(re.findall(r"^```live ([\w-]+)", chapters, flags=re.M))]
    said = live_strings(*figures, "numbers", "sentence")
    assert sorted(said - set(chinese_strings())) == []


def test_a_chinese_string_has_the_values_of_the_english_and_is_used():
    scripts = "".join(
        path.read_text(encoding="utf-8") for path in (ASSETS / "live").glob("*.js") if path.stem != "words"
    )
    scripts += page_source("translator.js")  # names the two sides of an attention
    scripts += "".join(map(asset, SHARED))
    scripts += json.dumps(sorted(ablated()), ensure_ascii=False)
    for english, chinese in chinese_strings().items():
        assert sorted(set(re.findall(r"\{\w+\}", english))) == sorted(set(re.findall(r"\{\w+\}", chinese))), english
        assert f'"{english}"' in scripts, f"no figure says {english!r}"


HAN = "[\u4e00-\u9fff]"
UNUSUAL = re.compile(rf"{HAN}[,;:?!.](?={HAN}|\s|$)|{HAN}[A-Za-z0-9$`]|[A-Za-z0-9%$`]{HAN}|{HAN} {HAN}|{HAN}\(|\){HAN}")


@pytest.mark.parametrize("name", chinese_texts())
def test_punctuation_is_wide_and_latin_letters_stand_apart(name):
    text = re.sub(r"^```(?!hint|live|drawing).*?^```", "", chinese_texts()[name], flags=re.M | re.S)
    text = re.sub(r"\]\([^)]*\)", "]", text)  # links
    assert [text[max(0, found.start() - 8) : found.end() + 8] for found in UNUSUAL.finditer(text)] == []


def translated_pairs():
    """Name, original and translation of every chapter that has one, and of the README."""
    found = {path.name: (PAGES / "en" / path.name, path) for path in sorted((PAGES / "zh").glob("*.md"))}
    found["README.md"] = (repository() / "README.md", repository() / "README.zh.md")
    return {name: [path.read_text(encoding="utf-8") for path in paths] for name, paths in found.items()}


@pytest.mark.parametrize("name", translated_pairs())
def test_a_translation_has_the_links_numbers_and_rows_of_its_original(name):
    original, translation = (re.sub(r"^```.*?^```", "", text, flags=re.M | re.S) for text in translated_pairs()[name])
    for pattern in (r"\]\((?!README)([^)]+)\)", r"\{\{[\w-]+\}\}", r"^\|", r"^- "):
        ours, theirs = (sorted(re.findall(pattern, text, flags=re.M)) for text in (original, translation))
        assert ours == theirs
