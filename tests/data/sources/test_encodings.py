"""Texts without a mark: each language's letters tell its encoding."""

import pytest

from data.sources.delimited_text import as_utf8

TEXTS = [
    ("cp1252", "Müller Köln Schäfer Düsseldorf Groß"),
    ("cp1252", "mois août Nîmes février Orléans décembre Béziers"),
    ("cp1252", "año país Muñoz España Peña México Núñez"),
    ("cp1252", "città qualità Forlì più Cefalù perché"),
    ("cp1252", "Åke Sjöberg Malmö Björn Göteborg"),
    ("cp1252", "Søren Kjær Århus Bjørn Ødegård Ærø"),
    ("cp1252", "São Luís Maceió Belém Goiânia limões"),
    ("cp1252", "Guðrún Þórðardóttir Reykjavík Ísafjörður"),
    ("cp1252", "Müller José Muñoz François Søren João"),  # of no one language
    ("cp1250", "László Győr Erzsébet Pécs Jenő Szűcsi"),
    ("cp1250", "miasto Łódź Poznań Kraków Wrocław Rzeszów"),
    ("cp1250", "Jiří Dvořák Plzeň Tomáš České Kroměříž"),
    ("cp1250", "Zdeněk Němec Vítězslav Květa Zbyněk Luděk"),
    ("cp1250", "Ľubomír Kováč Košice Tóthová Ťažký"),
    ("cp1250", "Ştefan Timişoara Măriuţa Piteşti Braşov"),
    ("cp1250", "Željko Čović Šibenik Đurđica Perić"),
    ("cp1250", "Perić Marić Čović Kovač Babić"),
    ("cp1254", "Ayşe Yılmaz İstanbul Çağla Şahin Muğla Iğdır"),
    ("cp1254", "Yıldırım Işık Doğan Barış Aydın Akın Sarı"),
    ("cp1257", "Žydrūnė Panevėžys Rūta Balčiūnienė Ąžuolas"),
    ("cp1257", "vārds pilsēta Jānis Bērziņš Rīga Jūrmala"),
    ("cp1257", "Jüri Põld Pärnu Ülle Sõõr Võru Jõhvi"),
    ("cp1251", "имя город Иван Москва Анна Казань"),
    ("koi8_r", "имя город Иван Москва Анна Казань"),
    ("cp1253", "όνομα πόλη Γιώργος Αθήνα Μαρία Θεσσαλονίκη"),
    ("cp1255", "שם,עיר דוד,תל-אביב שרה,ירושלים משה,חיפה רחל,באר-שבע"),
    ("cp932", "名前,都市 太郎,東京 花子,大阪 健一,名古屋"),
]


@pytest.mark.parametrize(("encoding", "words"), TEXTS)
def test_the_letters_of_a_text_tell_its_encoding(tmp_path, encoding, words):
    source, target = tmp_path / "t.csv", tmp_path / "utf8"
    text = words.replace(" ", "\n") + "\n"
    source.write_bytes(text.encode(encoding))
    assert as_utf8(source, target, "t.csv") == [f"t.csv is no UTF-8: it is read as {encoding}"]
    assert target.read_text(encoding="utf-8") == text
